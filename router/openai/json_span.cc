#include "router/openai/json_span.h"

#include <algorithm>

namespace tandem::router {
namespace {

constexpr absl::string_view kSpace = " \t\n\r";

class Scanner {
 public:
  explicit Scanner(absl::string_view text) : text_(text) {}

  bool is_at_end() const { return at_ >= text_.size(); }
  char next() const { return is_at_end() ? '\0' : text_[at_]; }
  void Skip() { ++at_; }
  void SkipSpace() { at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size()); }

  // The string that begins here, without its quotes.
  absl::string_view TakeString() {
    const size_t begin = ++at_;
    while (!is_at_end() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_, text_.size());
    const absl::string_view inside = text_.substr(begin, at_ - begin);
    Skip();
    return inside;
  }

  // The value that begins here.
  absl::string_view TakeValue() {
    const size_t begin = at_;
    int depth = 0;
    while (!is_at_end()) {
      const char c = text_[at_];
      if (c == '"') {
        TakeString();
      } else if (c == '{' || c == '[') {
        ++depth;
        Skip();
      } else if (depth > 0 && (c == '}' || c == ']')) {
        --depth;
        Skip();
      } else if (depth > 0 || (c != ',' && c != '}' && kSpace.find(c) == absl::string_view::npos)) {
        Skip();
        continue;  // a character of a number or word
      } else {
        break;
      }
      if (depth == 0) break;
    }
    return text_.substr(begin, at_ - begin);
  }

 private:
  absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<absl::string_view> FindJsonSpan(absl::string_view object, absl::string_view key) {
  std::optional<absl::string_view> found;
  Scanner scanner(object);
  scanner.SkipSpace();
  scanner.Skip();  // {
  while (true) {
    scanner.SkipSpace();
    if (scanner.next() != '"') return found;
    const absl::string_view name = scanner.TakeString();
    scanner.SkipSpace();
    scanner.Skip();  // :
    scanner.SkipSpace();
    const absl::string_view value = scanner.TakeValue();
    if (name == key) found = value;
    scanner.SkipSpace();
    scanner.Skip();  // , or }
  }
}

}  // namespace tandem::router

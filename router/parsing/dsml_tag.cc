#include "router/parsing/dsml_tag.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace tandem::router {
namespace {

constexpr absl::string_view kMark = "｜DSML｜";
constexpr absl::string_view kNoNameBytes = "<>\n";  // so that a tag without its end is not waited for

constexpr std::pair<absl::string_view, DsmlTag::Kind> kNames[] = {
    {"function_calls", DsmlTag::Kind::kFunctionCalls},
    {"invoke", DsmlTag::Kind::kInvoke},
    {"parameter", DsmlTag::Kind::kParameter},
};

// Reads a text from its front. Each step says kYes and goes past what it read, kNo, or kPartial where the text ends
// before the step is decided.
class Reader {
 public:
  explicit Reader(absl::string_view text) : text_(text) {}

  TagMatch Take(absl::string_view expected) {
    const absl::string_view rest = text_.substr(at_);
    if (absl::StartsWith(rest, expected)) {
      at_ += expected.size();
      return TagMatch::kYes;
    }
    return absl::StartsWith(expected, rest) ? TagMatch::kPartial : TagMatch::kNo;
  }

  void SkipSpace() {
    while (at_ < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  // After white space.
  TagMatch TakeToken(absl::string_view expected) {
    SkipSpace();
    return Take(expected);
  }

  TagMatch TakeName(DsmlTag::Kind* kind) {
    TagMatch match = TagMatch::kNo;
    for (const auto& [name, its_kind] : kNames) {
      const TagMatch its_match = Take(name);
      if (its_match == TagMatch::kNo) continue;
      *kind = its_kind;
      match = its_match;
      break;
    }
    if (match != TagMatch::kYes) return match;
    if (is_at_end()) return TagMatch::kPartial;
    const unsigned char next = static_cast<unsigned char>(text_[at_]);
    return absl::ascii_isalnum(next) || next == '_' ? TagMatch::kNo : TagMatch::kYes;
  }

  // ` string="true"`
  TagMatch TakeStringAttribute(std::optional<bool>* is_string) {
    for (const absl::string_view part :
         {absl::string_view("string"), absl::string_view("="), absl::string_view("\"")}) {
      if (const TagMatch match = TakeToken(part); match != TagMatch::kYes) return match;
    }
    for (const bool value : {true, false}) {
      const TagMatch match = Take(value ? "true\"" : "false\"");
      if (match == TagMatch::kYes) *is_string = value;
      if (match != TagMatch::kNo) return match;
    }
    return TagMatch::kNo;
  }

  // What may stand behind the name: `string="..."` of a parameter, then `>` or `/>`.
  TagMatch TakeTail(DsmlTag* tag) {
    if (tag->kind == DsmlTag::Kind::kParameter && !tag->is_string.has_value()) {
      const size_t before = at_;
      const TagMatch match = TakeStringAttribute(&tag->is_string);
      if (match == TagMatch::kPartial) return match;
      if (match == TagMatch::kNo) at_ = before;
    }
    const TagMatch empty = TakeToken("/>");
    if (empty == TagMatch::kPartial) return empty;
    tag->is_empty = empty == TagMatch::kYes;
    return tag->is_empty ? TagMatch::kYes : TakeToken(">");
  }

  // ` name="..."` and the tail. A name ends at the first quote with a tail behind it: keys are written as they are, be
  // there a quote in them.
  TagMatch TakeAttributes(DsmlTag* tag) {
    if (tag->kind == DsmlTag::Kind::kParameter) {
      const size_t before = at_;
      const TagMatch match = TakeStringAttribute(&tag->is_string);
      if (match == TagMatch::kPartial) return match;
      if (match == TagMatch::kNo) at_ = before;
    }
    for (const absl::string_view part : {absl::string_view("name"), absl::string_view("="), absl::string_view("\"")}) {
      if (const TagMatch match = TakeToken(part); match != TagMatch::kYes) return match;
    }
    const size_t begin = at_;
    const std::optional<bool> is_string = tag->is_string;
    for (size_t quote = text_.find('"', begin); quote != absl::string_view::npos; quote = text_.find('"', quote + 1)) {
      const absl::string_view name = text_.substr(begin, quote - begin);
      if (name.find_first_of(kNoNameBytes) != absl::string_view::npos) return TagMatch::kNo;
      at_ = quote + 1;
      tag->is_string = is_string;
      const TagMatch match = TakeTail(tag);
      if (match == TagMatch::kNo) continue;
      tag->name = std::string(name);
      return match == TagMatch::kYes && name.empty() ? TagMatch::kNo : match;
    }
    const bool is_over = text_.find_first_of(kNoNameBytes, begin) != absl::string_view::npos;
    return is_over ? TagMatch::kNo : TagMatch::kPartial;
  }

  bool is_at_end() const { return at_ == text_.size(); }
  size_t at() const { return at_; }

 private:
  absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace

TagMatch MatchDsmlTag(absl::string_view text, DsmlTag* tag) {
  const bool is_cut = text.size() >= kDsmlTagBytesMax;
  Reader reader(text.substr(0, kDsmlTagBytesMax));
  DsmlTag found;
  if (const TagMatch match = reader.Take("<"); match != TagMatch::kYes) return match;
  const TagMatch slash = reader.Take("/");
  if (slash == TagMatch::kPartial) return slash;
  found.is_end = slash == TagMatch::kYes;
  const TagMatch mark = reader.Take(kMark);
  if (mark == TagMatch::kPartial) return mark;
  found.is_bare = mark == TagMatch::kNo;
  if (const TagMatch match = reader.TakeName(&found.kind); match != TagMatch::kYes) return match;

  const size_t front = reader.at();
  const bool has_attributes = !found.is_end && found.kind != DsmlTag::Kind::kFunctionCalls;
  TagMatch match = has_attributes ? reader.TakeAttributes(&found) : reader.TakeToken(">");
  if (match == TagMatch::kPartial && is_cut) match = TagMatch::kNo;
  if (match == TagMatch::kPartial) return match;
  found.length = reader.at();
  if (match == TagMatch::kNo) {
    if (found.is_bare) return match;
    const size_t end = text.substr(0, kDsmlTagBytesMax).find_first_of(kNoNameBytes, front);
    if (end == absl::string_view::npos && !is_cut) return TagMatch::kPartial;
    found.is_malformed = true;
    found.is_string.reset();
    found.length = end == absl::string_view::npos ? front : end + (text[end] == '>' ? 1 : 0);
  }
  *tag = std::move(found);
  return TagMatch::kYes;
}

bool HasDsmlMark(absl::string_view text) {
  return absl::StartsWith(text, "<｜DSML｜") || absl::StartsWith(text, "</｜DSML｜");
}

}  // namespace tandem::router

#include "router/tokenizer/deepseek_splitter.h"

#include <array>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "router/tokenizer/unicode_class.h"

namespace tandem::router {
namespace {

struct Char {
  UnicodeClass kind;
  bool is_cjk;      // belongs to a segment of the second pattern
  uint32_t length;  // bytes; 0 past the end of the text
};

constexpr bool IsCjk(uint32_t c) { return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF); }

bool IsWord(UnicodeClass kind) { return kind == UnicodeClass::kLetter || kind == UnicodeClass::kMark; }
bool IsPunctuation(UnicodeClass kind) { return kind == UnicodeClass::kPunctuation || kind == UnicodeClass::kSymbol; }
bool IsSpace(UnicodeClass kind) { return kind == UnicodeClass::kSpace || kind == UnicodeClass::kNewline; }

class Splitter {
 public:
  Splitter(absl::string_view text, std::vector<absl::string_view>* pieces)
      : classes_(UnicodeClasses::Get()), text_(text), pieces_(pieces) {
    for (uint32_t c = 0; c < ascii_.size(); ++c) ascii_[c] = classes_.Of(c);
  }

  void Run() {
    while (begin_ < text_.size()) {
      const Char first = Read(begin_);
      if (begin_ > gap_begin_ && first.is_cjk != is_gap_cjk_) EndGap();
      const size_t end = MatchAt(first);
      if (end == begin_) {
        is_gap_cjk_ = first.is_cjk;
        begin_ += first.length;
        continue;
      }
      EndGap();
      pieces_->push_back(text_.substr(begin_, end - begin_));
      begin_ = gap_begin_ = end;
    }
    EndGap();
  }

 private:
  Char Read(size_t at) const {
    if (at >= text_.size()) return {UnicodeClass::kOther, false, 0};
    const uint8_t* const bytes = reinterpret_cast<const uint8_t*>(text_.data()) + at;
    if (bytes[0] < 0x80) return {ascii_[bytes[0]], false, 1};
    uint32_t c;
    uint32_t length;
    if (bytes[0] < 0xE0) {
      c = (bytes[0] & 0x1Fu) << 6 | (bytes[1] & 0x3Fu);
      length = 2;
    } else if (bytes[0] < 0xF0) {
      c = (bytes[0] & 0x0Fu) << 12 | (bytes[1] & 0x3Fu) << 6 | (bytes[2] & 0x3Fu);
      length = 3;
    } else {
      c = (bytes[0] & 0x07u) << 18 | (bytes[1] & 0x3Fu) << 12 | (bytes[2] & 0x3Fu) << 6 | (bytes[3] & 0x3Fu);
      length = 4;
    }
    return {classes_.Of(c), IsCjk(c), length};
  }

  // The characters without a match before begin_ are a piece.
  void EndGap() {
    if (begin_ > gap_begin_) pieces_->push_back(text_.substr(gap_begin_, begin_ - gap_begin_));
    gap_begin_ = begin_;
  }

  // True if `next` continues the segment of `first`, which is no number.
  static bool IsSameSegment(Char first, Char next) {
    return next.length > 0 && next.is_cjk == first.is_cjk && next.kind != UnicodeClass::kNumber;
  }

  // End of the piece that begins with `first` at begin_; begin_ itself if none does.
  size_t MatchAt(Char first) const {
    const size_t after_first = begin_ + first.length;
    switch (first.kind) {
      case UnicodeClass::kNumber:
        return EndOfNumbers(after_first);
      case UnicodeClass::kLetter:
      case UnicodeClass::kMark:
        return EndOfWord(first, after_first);
      case UnicodeClass::kPunctuation:
      case UnicodeClass::kSymbol:
        if (first.length == 1 && after_first < text_.size() && IsAsciiLetter(after_first)) {
          return EndOfAsciiLetters(after_first);
        }
        return EndOfPunctuation(first, after_first);
      case UnicodeClass::kNewline:
        return EndOfSpace(first);
      case UnicodeClass::kSpace:
      case UnicodeClass::kOther:
        break;
    }
    const Char second = Read(after_first);
    if (IsSameSegment(first, second)) {
      if (IsWord(second.kind)) return EndOfWord(first, after_first);
      if (text_[begin_] == ' ' && IsPunctuation(second.kind)) return EndOfPunctuation(first, after_first);
    }
    return first.kind == UnicodeClass::kSpace ? EndOfSpace(first) : begin_;
  }

  // \p{N}{1,3}
  size_t EndOfNumbers(size_t at) const {
    for (int num_more = 2; num_more > 0; --num_more) {
      const Char next = Read(at);
      if (next.length == 0 || next.kind != UnicodeClass::kNumber) break;
      at += next.length;
    }
    return at;
  }

  bool IsAsciiLetter(size_t at) const { return absl::ascii_isalpha(static_cast<unsigned char>(text_[at])); }

  // [A-Za-z]*
  size_t EndOfAsciiLetters(size_t at) const {
    while (at < text_.size() && IsAsciiLetter(at)) ++at;
    return at;
  }

  // [\p{L}\p{M}]*
  size_t EndOfWord(Char first, size_t at) const {
    for (;;) {
      if (!first.is_cjk) at = EndOfAsciiLetters(at);
      const Char next = Read(at);
      if (!IsSameSegment(first, next) || !IsWord(next.kind)) return at;
      at += next.length;
    }
  }

  // [\p{P}\p{S}]*[\r\n]*
  size_t EndOfPunctuation(Char first, size_t at) const {
    Char next = Read(at);
    for (; IsSameSegment(first, next) && IsPunctuation(next.kind); next = Read(at)) at += next.length;
    for (; IsSameSegment(first, next) && next.kind == UnicodeClass::kNewline; next = Read(at)) at += next.length;
    return at;
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+
  size_t EndOfSpace(Char first) const {
    size_t at = begin_, last_begin = begin_, after_newlines = begin_;
    Char next = first;
    for (; IsSameSegment(first, next) && IsSpace(next.kind); next = Read(at)) {
      last_begin = at;
      at += next.length;
      if (next.kind == UnicodeClass::kNewline) after_newlines = at;
    }
    if (after_newlines > begin_) return after_newlines;
    const bool is_at_end = !IsSameSegment(first, next);
    return is_at_end || last_begin == begin_ ? at : last_begin;
  }

  const UnicodeClasses& classes_;
  std::array<UnicodeClass, 128> ascii_;
  absl::string_view text_;
  std::vector<absl::string_view>* pieces_;
  size_t begin_ = 0;      // where the next piece may begin
  size_t gap_begin_ = 0;  // characters from here to begin_ have begun no piece
  bool is_gap_cjk_ = false;
};

}  // namespace

const absl::string_view kDeepseekPatterns[3] = {
    "\\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

void SplitAsDeepseek(absl::string_view text, std::vector<absl::string_view>* pieces) { Splitter(text, pieces).Run(); }

}  // namespace tandem::router

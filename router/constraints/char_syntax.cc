#include "router/constraints/char_syntax.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::router {
namespace {

constexpr int kCountMax = 10000;
constexpr uint32_t kCharMax = 0x10FFFF;

CharClass BeyondAscii() { return CharClass({{0x80, kCharMax}}); }

ReadClass Digits() {
  const CharClass digits({{'0', '9'}});
  return {digits, digits.Union(BeyondAscii()), false};
}

ReadClass WordChars() {
  const CharClass word({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return {word, word.Union(BeyondAscii()), false};
}

// Beyond ASCII: Unicode's white space, and what only ECMA-262 or only Python counts with it.
ReadClass Spaces() {
  const CharClass spaces({{'\t', '\r'}, {' ', ' '}});
  return {spaces,
          spaces.Union(CharClass({{0x1C, 0x1F},
                                  {0x85, 0x85},
                                  {0xA0, 0xA0},
                                  {0x1680, 0x1680},
                                  {0x180E, 0x180E},
                                  {0x2000, 0x200A},
                                  {0x2028, 0x2029},
                                  {0x202F, 0x202F},
                                  {0x205F, 0x205F},
                                  {0x3000, 0x3000},
                                  {0xFEFF, 0xFEFF}})),
          false};
}

ReadClass Opposite(const ReadClass& of) { return {of.maybe.Complement(), of.sure.Complement(), false}; }

int HexValue(uint32_t c) {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<int>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<int>(c - 'A' + 10);
  return -1;
}

absl::StatusOr<ReadClass> ReadHex(SyntaxCursor* cursor, int num_digits, size_t begin) {
  uint32_t c = 0;
  for (int i = 0; i < num_digits; ++i) {
    const int digit = HexValue(cursor->Peek());
    if (digit < 0) return cursor->Bad("a hexadecimal digit is missing");
    c = c << 4 | static_cast<uint32_t>(digit);
    cursor->Skip(1);
  }
  if (c >= 0xD800 && c <= 0xDFFF) return cursor->Bad("half a surrogate pair is not supported", begin);
  if (c > kCharMax) return cursor->Bad("a character beyond U+10FFFF", begin);
  return ReadClass::Of(c);
}

// \u{1F600}, behind the brace.
absl::StatusOr<ReadClass> ReadBracedHex(SyntaxCursor* cursor, size_t begin) {
  int num_digits = 0;
  while (num_digits < 7 && HexValue(cursor->Peek(num_digits)) >= 0) ++num_digits;
  if (num_digits == 0 || num_digits > 6) return cursor->Bad("1 to 6 hexadecimal digits are missing");
  ASSIGN_OR_RETURN(ReadClass read, ReadHex(cursor, num_digits, begin));
  if (!cursor->Take('}')) return cursor->Bad("a } is missing");
  return read;
}

std::optional<uint32_t> ControlOf(uint32_t letter) {
  switch (letter) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    default:
      return std::nullopt;
  }
}

std::optional<int> ReadNumber(SyntaxCursor* cursor) {
  int64_t number = 0;
  const size_t begin = cursor->at();
  while (cursor->Peek() >= '0' && cursor->Peek() <= '9') {
    number = std::min<int64_t>(number * 10 + (cursor->Next() - '0'), kCountMax + 1);
  }
  if (cursor->at() == begin) return std::nullopt;
  return static_cast<int>(number);
}

absl::StatusOr<ReadClass> ReadClassItem(SyntaxCursor* cursor) {
  if (cursor->IsAtEnd()) return cursor->Bad("a class without its end");
  const uint32_t c = cursor->Next();
  return c == '\\' ? ReadEscape(cursor) : ReadClass::Of(c);
}

}  // namespace

bool SyntaxCursor::IsAt(absl::string_view ascii) const {
  for (size_t i = 0; i < ascii.size(); ++i) {
    if (Peek(i) != static_cast<unsigned char>(ascii[i])) return false;
  }
  return true;
}

absl::Status SyntaxCursor::Bad(absl::string_view what, size_t at) const {
  if (places_ == Places::kCharacters) return absl::InvalidArgumentError(absl::StrCat(what, " at character ", at));
  size_t line = 1, line_begin = 0;
  for (size_t i = 0; i < std::min(at, chars_.size()); ++i) {
    if (chars_[i] != '\n') continue;
    ++line;
    line_begin = i + 1;
  }
  return absl::InvalidArgumentError(absl::StrCat(what, " at line ", line, ", column ", at - line_begin + 1));
}

CharClass AnyButLineEnds() { return CharClass({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement(); }

absl::StatusOr<ReadClass> ReadEscape(SyntaxCursor* cursor) {
  const size_t begin = cursor->at() - 1;
  if (cursor->IsAtEnd()) return cursor->Bad("a \\ at the end", begin);
  const uint32_t c = cursor->Next();
  if (const auto control = ControlOf(c); control.has_value()) return ReadClass::Of(*control);
  switch (c) {
    case 'd':
      return Digits();
    case 'D':
      return Opposite(Digits());
    case 'w':
      return WordChars();
    case 'W':
      return Opposite(WordChars());
    case 's':
      return Spaces();
    case 'S':
      return Opposite(Spaces());
    case 'x':
      return ReadHex(cursor, 2, begin);
    case 'u':
      return cursor->Take('{') ? ReadBracedHex(cursor, begin) : ReadHex(cursor, 4, begin);
    case 'U':
      return ReadHex(cursor, 8, begin);
    default:
      break;
  }
  const bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (is_word) {
    return cursor->Bad(absl::StrCat("\\", std::string(1, static_cast<char>(c)), " is not supported"), begin);
  }
  return ReadClass::Of(c);
}

absl::StatusOr<CharClass> ReadBrackets(SyntaxCursor* cursor) {
  const size_t begin = cursor->at();
  cursor->Skip(1);
  const bool is_negated = cursor->Take('^');
  // Put together at the end: a union for each item would cost the square of their number.
  std::vector<CharClass::Range> sure, maybe;
  const auto add = [](const CharClass& chars, std::vector<CharClass::Range>* to) {
    to->insert(to->end(), chars.ranges().begin(), chars.ranges().end());
  };
  while (!cursor->Take(']')) {
    ASSIGN_OR_RETURN(const ReadClass first, ReadClassItem(cursor));
    const bool is_range = first.is_letter && cursor->Peek() == '-' && cursor->Has(1) && cursor->Peek(1) != ']';
    if (!is_range) {
      add(first.sure, &sure);
      add(first.maybe, &maybe);
      continue;
    }
    cursor->Skip(1);
    ASSIGN_OR_RETURN(const ReadClass last, ReadClassItem(cursor));
    const uint32_t from = first.sure.ranges().empty() ? 0 : first.sure.ranges()[0].first;
    if (!last.is_letter || last.sure.empty() || last.sure.ranges()[0].first < from) {
      return cursor->Bad("a range whose end is below its beginning, or is a class");
    }
    sure.push_back({from, last.sure.ranges()[0].first});
    maybe.push_back(sure.back());
  }
  CharClass chars = is_negated ? CharClass(std::move(maybe)).Complement() : CharClass(std::move(sure));
  if (chars.empty()) return cursor->Bad("a class without characters", begin);
  return chars;
}

absl::StatusOr<Counts> ReadCounts(SyntaxCursor* cursor) {
  const size_t begin = cursor->at();
  cursor->Skip(1);
  const std::optional<int> first = ReadNumber(cursor);
  Counts counts;
  if (first.has_value()) counts = {*first, *first};
  if (first.has_value() && cursor->Take(',')) counts.max = ReadNumber(cursor).value_or(-1);
  if (!first.has_value() || !cursor->Take('}')) {
    return cursor->Bad("a { that begins no count must be escaped or quoted", begin);
  }
  if (counts.min > kCountMax || counts.max > kCountMax) {
    return cursor->Bad(absl::StrCat("a count above ", kCountMax), begin);
  }
  if (counts.max >= 0 && counts.max < counts.min) {
    return cursor->Bad("a count whose end is below its beginning", begin);
  }
  return counts;
}

bool IsAtRepeat(const SyntaxCursor& cursor) {
  const uint32_t c = cursor.Peek();
  return c == '*' || c == '+' || c == '?' || c == '{';
}

absl::StatusOr<std::optional<Counts>> ReadRepeat(SyntaxCursor* cursor) {
  if (cursor->Take('*')) return Counts{0, -1};
  if (cursor->Take('+')) return Counts{1, -1};
  if (cursor->Take('?')) return Counts{0, 1};
  if (cursor->Peek() != '{') return std::nullopt;
  return ReadCounts(cursor);
}

}  // namespace tandem::router

// Letters, escapes and classes as regular expressions and grammars write them: [a-z], [^"\\], \n, \x41, \u00e9, \d.
//
// Dialects differ in what \d, \w, \s and the point mean beyond ASCII. A class is read twice: `sure` has the characters
// that every dialect takes, `maybe` those that some do, and the opposite of a class is what is surely not in it. So a
// text that is generated is read alike by Python, ECMA-262 and whatever else judges it.
// Tested by char_syntax_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/constraints/char_class.h"

namespace tandem::router {

// Reads a text character by character; errors say where.
class SyntaxCursor final {
 public:
  enum class Places { kCharacters, kLines };  // "at character 3", from 0; "at line 1, column 4", from 1

  // text: valid UTF-8.
  SyntaxCursor(absl::string_view text, Places places) : chars_(CharsOf(text)), places_(places) {}

  bool IsAtEnd() const { return !Has(0); }
  bool Has(size_t ahead) const { return at_ + ahead < chars_.size(); }
  // 0 behind the end.
  uint32_t Peek(size_t ahead = 0) const { return Has(ahead) ? chars_[at_ + ahead] : 0; }
  bool IsAt(absl::string_view ascii) const;
  uint32_t Next() { return chars_[at_++]; }
  void Skip(size_t count) { at_ += count; }
  bool Take(char c) {
    if (IsAtEnd() || Peek() != static_cast<uint32_t>(c)) return false;
    ++at_;
    return true;
  }
  size_t at() const { return at_; }

  // INVALID_ARGUMENT: what is wrong, and where.
  absl::Status Bad(absl::string_view what, size_t at) const;
  absl::Status Bad(absl::string_view what) const { return Bad(what, at_); }

 private:
  const std::vector<uint32_t> chars_;
  const Places places_;
  size_t at_ = 0;
};

struct ReadClass {
  static ReadClass Of(uint32_t c) { return {CharClass::Of(c), CharClass::Of(c)}; }

  CharClass sure;
  CharClass maybe;        // holds `sure`
  bool is_letter = true;  // one character, which may begin or end a range
};

// Any character but ends of lines, as ECMA-262 counts them; no dialect leaves out more.
CharClass AnyButLineEnds();

// What stands behind a backslash.
absl::StatusOr<ReadClass> ReadEscape(SyntaxCursor* cursor);
// From the [ on.
absl::StatusOr<CharClass> ReadBrackets(SyntaxCursor* cursor);

// `{n}`, `{n,}`, `{n,m}` from the { on. INVALID_ARGUMENT also where it is no count, or above 10,000.
struct Counts {
  int min = 0;
  int max = -1;  // -1: no bound
};
absl::StatusOr<Counts> ReadCounts(SyntaxCursor* cursor);

bool IsAtRepeat(const SyntaxCursor& cursor);
// `*`, `+`, `?` or counts in braces; nullopt where none of them comes.
absl::StatusOr<std::optional<Counts>> ReadRepeat(SyntaxCursor* cursor);

}  // namespace tandem::router

// Sets of characters (Unicode code points without surrogates), as ascending ranges that do not touch.
// Tested by char_class_test.cc.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::router {

class CharClass final {
 public:
  struct Range {
    uint32_t first = 0;
    uint32_t last = 0;  // inclusive
    auto operator<=>(const Range&) const = default;
  };

  CharClass() = default;
  // In any order; may overlap. Surrogates are left out.
  explicit CharClass(std::vector<Range> ranges);
  static CharClass All() { return CharClass({{0, 0x10FFFF}}); }
  static CharClass Of(uint32_t c) { return CharClass({{c, c}}); }
  // The characters of a text in UTF-8.
  static CharClass AnyOf(absl::string_view text);

  CharClass Union(const CharClass& other) const;
  CharClass Intersect(const CharClass& other) const;
  CharClass Complement() const;
  CharClass Minus(const CharClass& other) const { return Intersect(other.Complement()); }

  bool Contains(uint32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }
  auto operator<=>(const CharClass&) const = default;

 private:
  std::vector<Range> ranges_;
};

// The characters of a text in valid UTF-8.
std::vector<uint32_t> CharsOf(absl::string_view utf8);

}  // namespace tandem::router

// Sets of characters against sets of numbers: random ranges, near the surrogates and the ends of Unicode.
#include "router/constraints/char_class.h"

#include <algorithm>
#include <bitset>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

constexpr uint32_t kCharMax = 0x10FFFF;
using Bits = std::bitset<kCharMax + 1>;

bool IsSurrogate(uint32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

Bits BitsOf(const CharClass& chars) {
  auto bits = std::make_unique<Bits>();
  for (const CharClass::Range& range : chars.ranges()) {
    for (uint32_t c = range.first; c <= range.last; ++c) bits->set(c);
  }
  return *bits;
}

// Ranges about the places where mistakes would be.
std::vector<CharClass::Range> DrawRanges(std::mt19937* random) {
  static constexpr uint32_t kCenters[] = {0, 'a', 0x7F, 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0x10000, kCharMax};
  std::vector<CharClass::Range> ranges;
  for (uint32_t i = (*random)() % 5; i > 0; --i) {
    const uint32_t center = kCenters[(*random)() % std::size(kCenters)];
    const uint32_t first = center - std::min<uint32_t>(center, (*random)() % 6);
    ranges.push_back({first, std::min<uint32_t>(kCharMax, first + (*random)() % 12)});
  }
  return ranges;
}

// Ascending, apart, no surrogates.
void ExpectNormal(const CharClass& chars) {
  uint32_t next = 0;
  for (const CharClass::Range& range : chars.ranges()) {
    EXPECT_GE(range.first, next);
    EXPECT_GE(range.last, range.first);
    EXPECT_LE(range.last, kCharMax);
    EXPECT_FALSE(IsSurrogate(range.first) || IsSurrogate(range.last));
    next = range.last + 2;
  }
}

TEST(CharClassTest, SetOperationsAreThoseOfSets) {
  std::mt19937 random(1);
  Bits valid;
  for (uint32_t c = 0; c <= kCharMax; ++c) valid.set(c, !IsSurrogate(c));
  for (int i = 0; i < 60; ++i) {
    const std::vector<CharClass::Range> ranges_a = DrawRanges(&random), ranges_b = DrawRanges(&random);
    const CharClass a(ranges_a), b(ranges_b);
    Bits drawn;
    for (const CharClass::Range& range : ranges_a) {
      for (uint32_t c = range.first; c <= range.last; ++c) drawn.set(c, !IsSurrogate(c));
    }
    const Bits in_a = BitsOf(a), in_b = BitsOf(b);
    EXPECT_EQ(in_a, drawn);
    EXPECT_EQ(BitsOf(a.Union(b)), in_a | in_b);
    EXPECT_EQ(BitsOf(a.Intersect(b)), in_a & in_b);
    EXPECT_EQ(BitsOf(a.Minus(b)), in_a & ~in_b);
    EXPECT_EQ(BitsOf(a.Complement()), valid & ~in_a);
    EXPECT_EQ(a.Complement().Complement(), a);
    for (const CharClass& chars : {a, a.Union(b), a.Intersect(b), a.Minus(b), a.Complement()}) ExpectNormal(chars);
    for (const uint32_t c : {0u, 'a' + 0u, 0xD7FFu, 0xDABCu, 0xE000u, kCharMax}) EXPECT_EQ(a.Contains(c), in_a.test(c));
  }
}

TEST(CharClassTest, EqualSetsAreEqualHoweverTheyAreWritten) {
  EXPECT_EQ(CharClass({{'b', 'd'}, {'a', 'a'}, {'c', 'f'}}), CharClass({{'a', 'f'}}));
  EXPECT_EQ(CharClass({{0xD000, 0xE000}}), CharClass({{0xD000, 0xD7FF}, {0xE000, 0xE000}}));
  EXPECT_EQ(CharClass({{0xD900, 0xDA00}}), CharClass());
  EXPECT_TRUE(CharClass().empty());
  EXPECT_EQ(CharClass().Complement(), CharClass::All());
  EXPECT_EQ(CharClass::AnyOf("aé世🙂"),
            CharClass({{'a', 'a'}, {0xE9, 0xE9}, {0x4E16, 0x4E16}, {0x1F642, 0x1F642}}));
}

TEST(CharClassTest, CharactersOfText) {
  EXPECT_EQ(CharsOf(""), std::vector<uint32_t>());
  EXPECT_EQ(CharsOf("aé世🙂"), (std::vector<uint32_t>{'a', 0xE9, 0x4E16, 0x1F642}));
  EXPECT_EQ(CharsOf(std::string("\0x", 2)), (std::vector<uint32_t>{0, 'x'}));
}

}  // namespace
}  // namespace tandem::router

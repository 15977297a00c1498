// Proves the generator against the known-answer vectors that its authors publish with it.
#include "model/philox.h"

#include "gtest/gtest.h"

namespace tandem::model {
namespace {

TEST(PhiloxTest, GivesThePublishedAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32(0, {0, 0, 0, 0}), (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(Philox4x32(~uint64_t{0}, {~0u, ~0u, ~0u, ~0u}),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(Philox4x32(0x299f31d0a4093822u, {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}),
            (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(PhiloxTest, EveryWordOfKeyAndCounterMatters) {
  const auto base = Philox4x32(1, {1, 1, 1, 1});
  EXPECT_NE(base, Philox4x32(2, {1, 1, 1, 1}));
  EXPECT_NE(base, Philox4x32(1 | uint64_t{1} << 32, {1, 1, 1, 1}));
  for (int word = 0; word < 4; ++word) {
    PhiloxCounter counter = {1, 1, 1, 1};
    counter[word] = 2;
    EXPECT_NE(base, Philox4x32(1, counter)) << word;
  }
}

}  // namespace
}  // namespace tandem::model

// Proves that Lanes are what they are said to be: the documented tree, and the scalar conversions in every lane.
// This binary is compiled at the baseline level; lane_kernels_test.cc compares the levels.
#include "kernels/lanes.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "kernels/dtypes.h"
#include "kernels/lane_math.h"
#include "kernels/portable_math.h"

namespace tandem::kernels {
namespace {

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

TEST(LanesTest, SumIsTheDocumentedTree) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 1000; ++trial) {
    float values[kLanes];
    for (float& value : values) value = std::normal_distribution<float>(0, 1)(random) * std::exp2(trial % 20);
    float tree[kLanes];
    std::copy(values, values + kLanes, tree);
    for (int half = kLanes / 2; half >= 1; half /= 2) {
      for (int l = 0; l < half; ++l) tree[l] = tree[l] + tree[l + half];
    }
    EXPECT_TRUE(SameBits(SumLanes(LoadLanes(values)), tree[0]));
  }
}

TEST(LanesTest, EveryE4m3CodeDecodesAsAScalar) {
  uint8_t codes[256];
  for (int i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(i);
  for (int i = 0; i < 256; i += kLanes) {
    const Lanes lanes = LoadE4m3Lanes(codes + i);
    for (int l = 0; l < kLanes; ++l) {
      const float scalar = ToFloat(E4m3{codes[i + l]});
      EXPECT_TRUE(SameBits(lanes[l], scalar) || (std::isnan(lanes[l]) && std::isnan(scalar))) << i + l;
    }
  }
}

TEST(LanesTest, Bf16ConversionsAreTheScalarOnes) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 20000; ++trial) {
    float values[kLanes];
    for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (trial == 0) {
      values[0] = std::bit_cast<float>(0x7f800001u);
      values[1] = std::bit_cast<float>(0xffffffffu);
      values[2] = std::numeric_limits<float>::max();
      values[3] = -0.0f;
    }
    const Lanes rounded = RoundLanesToBf16(LoadLanes(values));
    Bf16 stored[kLanes];
    StoreBf16Lanes(stored, LoadLanes(values));
    const Lanes loaded = LoadBf16Lanes(stored);
    for (int l = 0; l < kLanes; ++l) {
      ASSERT_EQ(stored[l], ToBf16(values[l])) << values[l];
      ASSERT_TRUE(SameBits(rounded[l], ToFloat(stored[l])));
      ASSERT_TRUE(SameBits(loaded[l], ToFloat(stored[l])));
    }
  }
}

TEST(LanesTest, ExpIsTheScalarOneInEveryLane) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 20000; ++trial) {
    float values[kLanes];
    for (float& value : values) value = std::uniform_real_distribution<float>(-95, 95)(random);
    values[0] = -std::numeric_limits<float>::infinity();
    values[1] = std::numeric_limits<float>::infinity();
    values[2] = std::numeric_limits<float>::quiet_NaN();
    const Lanes lanes = ExpLanes(LoadLanes(values));
    for (int l = 0; l < kLanes; ++l) {
      if (l == 2) continue;
      ASSERT_TRUE(SameBits(lanes[l], Exp(values[l]))) << values[l];
    }
    ASSERT_TRUE(std::isnan(lanes[2]));
  }
}

TEST(LanesTest, MaxFindsTheLargestLaneWhereverItIs) {
  for (int place = 0; place < kLanes; ++place) {
    float values[kLanes];
    for (int l = 0; l < kLanes; ++l) values[l] = static_cast<float>(-l);
    values[place] = 1.5f;
    EXPECT_EQ(MaxLane(LoadLanes(values)), 1.5f);
  }
}

}  // namespace
}  // namespace tandem::kernels

// Proves that draws are a function of the seed, uniform and exponential. The engine's own bits are the standard's:
// [rand.predef] gives the 10000th value of mt19937_64.
#include "tools/bench_serving/draws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tandem::bench_serving {
namespace {

TEST(DrawsTest, BitsAreTheStandardsEngines) {
  Draws draws(5489);  // the engine's default seed
  uint64_t value = 0;
  for (int i = 0; i < 10000; ++i) value = draws.Between(0, UINT64_MAX);
  EXPECT_EQ(value, 9981545732273789042u);
}

TEST(DrawsTest, BetweenIsUniformAndReachesBothEnds) {
  Draws draws(1);
  int counts[7] = {};
  constexpr int kDraws = 70'000;
  for (int i = 0; i < kDraws; ++i) {
    const uint64_t value = draws.Between(3, 9);
    ASSERT_GE(value, 3u);
    ASSERT_LE(value, 9u);
    ++counts[value - 3];
  }
  double chi_squared = 0;
  for (const int count : counts) chi_squared += (count - 10'000.0) * (count - 10'000.0) / 10'000;
  EXPECT_LT(chi_squared, 22.5) << "6 degrees of freedom: one in a thousand, and the seed is fixed";
  EXPECT_EQ(draws.Between(5, 5), 5u);
}

TEST(DrawsTest, ExponentialHasItsMeanAndItsTail) {
  Draws draws(2);
  constexpr int kDraws = 100'000;
  double sum = 0;
  int num_beyond_mean = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = draws.Exponential(0.25);
    ASSERT_GE(value, 0);
    ASSERT_FALSE(std::isinf(value));
    sum += value;
    num_beyond_mean += value > 0.25;
  }
  EXPECT_NEAR(sum / kDraws, 0.25, 0.25 * 0.02);
  EXPECT_NEAR(num_beyond_mean / double{kDraws}, std::exp(-1), 0.01);
}

TEST(DrawsTest, ShuffleKeepsEveryValueAndMovesThem) {
  std::vector<int> values(100);
  std::iota(values.begin(), values.end(), 0);
  const std::vector<int> before = values;
  Draws(3).Shuffle(&values);
  EXPECT_NE(values, before);
  std::sort(values.begin(), values.end());
  EXPECT_EQ(values, before);
}

}  // namespace
}  // namespace tandem::bench_serving

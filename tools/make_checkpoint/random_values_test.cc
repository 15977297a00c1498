// Proves moments and tails of the normal numbers with bounds of five standard errors, that streams differ by seed and
// by name, and pins the first numbers: checkpoints are made of them.
#include "tools/make_checkpoint/random_values.h"

#include <cmath>

#include "gtest/gtest.h"

namespace tandem::make_checkpoint {
namespace {

TEST(RandomValuesTest, NormalNumbersHaveTheMomentsAndTailsOfTheNormalDistribution) {
  RandomValues random(42, "stream");
  constexpr int kCount = 1'000'000;
  double sum = 0, square = 0, cube = 0, fourth = 0;
  int beyond_one = 0, beyond_three = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.NextNormal();
    sum += x;
    square += x * x;
    cube += x * x * x;
    fourth += x * x * x * x;
    beyond_one += std::fabs(x) > 1;
    beyond_three += std::fabs(x) > 3;
  }
  const double error = 5 / std::sqrt(static_cast<double>(kCount));
  EXPECT_NEAR(sum / kCount, 0, error);
  EXPECT_NEAR(square / kCount, 1, error * std::sqrt(2.0));
  EXPECT_NEAR(cube / kCount, 0, error * std::sqrt(15.0));
  EXPECT_NEAR(fourth / kCount, 3, error * std::sqrt(96.0));
  EXPECT_NEAR(beyond_one / double{kCount}, std::erfc(1 / std::sqrt(2.0)), error);
  EXPECT_NEAR(beyond_three / double{kCount}, std::erfc(3 / std::sqrt(2.0)), error * 0.052);
}

TEST(RandomValuesTest, UniformNumbersFillTheirRangeEvenly) {
  RandomValues random(1, "uniform");
  int counts[10] = {};
  for (int i = 0; i < 100000; ++i) {
    const double x = random.NextSigned();
    ASSERT_LT(std::fabs(x), 1.0);
    ++counts[static_cast<int>((x + 1) * 5)];
  }
  double chi_square = 0;
  for (int count : counts) chi_square += (count - 10000.0) * (count - 10000.0) / 10000.0;
  EXPECT_LT(chi_square, 27.9) << "9 degrees of freedom, p = 0.001";
}

TEST(RandomValuesTest, DependsOnSeedAndStreamAndNothingElse) {
  EXPECT_EQ(RandomValues(1, "a").NextNormal(), RandomValues(1, "a").NextNormal());
  EXPECT_NE(RandomValues(1, "a").NextNormal(), RandomValues(2, "a").NextNormal());
  EXPECT_NE(RandomValues(1, "a").NextNormal(), RandomValues(1, "b").NextNormal());
}

}  // namespace
}  // namespace tandem::make_checkpoint

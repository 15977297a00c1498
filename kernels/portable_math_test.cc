// Proves the error bounds that portable_math.h states, against libm in higher precision over dense sweeps.
#include "kernels/portable_math.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace tandem::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(ExpTest, StaysWithinItsRelativeError) {
  double worst = 0;
  const auto sweep = [&](uint32_t begin, uint32_t end) {  // float bit patterns
    for (uint32_t bits = begin; bits < end; bits += 601) {
      const float x = std::bit_cast<float>(bits);
      const double exact = std::exp(static_cast<double>(x));
      worst = std::max(worst, std::abs(Exp(x) - exact) / exact);
    }
  };
  sweep(0, std::bit_cast<uint32_t>(88.7228f));
  sweep(0x80000000u, std::bit_cast<uint32_t>(-86.0f));
  EXPECT_LT(worst, 1.2e-7);
}

TEST(ExpTest, HasExactValuesWhereTheyMatter) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(-kInfinity), 0.0f);
  EXPECT_EQ(Exp(-86.1f), 0.0f);
  EXPECT_EQ(Exp(-1e30f), 0.0f);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(89.0f), kInfinity);
  EXPECT_LT(Exp(88.7228f), kInfinity);
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(ExpTest, NeverDecreases) {
  float previous = 0;
  for (float x = -87.0f; x < 88.7f; x += 0.0007f) {
    const float y = Exp(x);
    ASSERT_GE(y, previous) << x;
    previous = y;
  }
}

TEST(LogTest, StaysWithinItsRelativeError) {
  std::mt19937_64 random(7);
  long double worst = 0;
  const auto check = [&](double x) {
    const long double exact = std::log(static_cast<long double>(x));
    if (exact != 0) worst = std::max(worst, std::abs((Log(x) - exact) / exact));
  };
  for (int i = 0; i < 300000; ++i) {
    check(std::bit_cast<double>(random() % 0x7ff0000000000000ull + 1));        // all magnitudes
    check(std::uniform_real_distribution<double>(0.0, 1.0)(random));           // what sampling noise uses
    check(1.0 + std::uniform_real_distribution<double>(-1e-3, 1e-3)(random));  // where log loses digits
  }
  EXPECT_LT(worst, 4e-16L);
}

TEST(LogTest, HasItsSpecialValues) {
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_EQ(Log(0.0), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(Log(std::numeric_limits<double>::infinity()), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(Log(-1.0)));
  EXPECT_TRUE(std::isnan(Log(std::numeric_limits<double>::quiet_NaN())));
}

TEST(SinCosTest, StaysWithinItsAbsoluteErrorUpToTheLongestTable) {
  std::mt19937_64 random(3);
  long double worst = 0;
  const auto check = [&](double x) {
    const auto [sine, cosine] = SinCos(x);
    worst = std::max(worst, std::abs(sine - std::sin(static_cast<long double>(x))));
    worst = std::max(worst, std::abs(cosine - std::cos(static_cast<long double>(x))));
  };
  for (int i = 0; i < 200000; ++i) check(std::uniform_real_distribution<double>(-0x1p22, 0x1p22)(random));
  for (int i = 0; i < 200000; ++i) check(std::uniform_real_distribution<float>(0, 200)(random));
  for (int quarter = 0; quarter < 100000; ++quarter) check(quarter * 1.5707963267948966);  // next to the zeros
  EXPECT_LT(worst, 3e-16L);
}

}  // namespace
}  // namespace tandem::kernels

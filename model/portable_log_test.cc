// Proves the logarithm's error against the C library in long double, and pins some bits: they are part of the sampler's
// contract, so a change of them changes tokens.
#include "model/portable_log.h"

#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace tandem::model {
namespace {

void ExpectClose(double value) {
  const long double expected = std::log(static_cast<long double>(value));
  const long double error = std::fabs(static_cast<long double>(PortableLog(value)) - expected);
  EXPECT_LE(error, std::fabs(expected) * 0x1p-51L) << value;
}

TEST(PortableLogTest, IsWithinTwoUlpOverTheWholeRange) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 200000; ++i) {
    const double mantissa = 1.0 + static_cast<double>(random() >> 12) * 0x1p-52;
    ExpectClose(std::ldexp(mantissa, static_cast<int>(random() % 2044) - 1022));
  }
}

TEST(PortableLogTest, IsWithinTwoUlpNearOneAndAtTheEdgesOfItsReduction) {
  EXPECT_EQ(PortableLog(1.0), 0.0);
  for (double base : {1.0, std::sqrt(0.5), std::sqrt(2.0), 2.0, 0.5}) {
    for (double value = base, i = 0; i < 100; ++i, value = std::nextafter(value, 10.0)) ExpectClose(value);
    for (double value = base, i = 0; i < 100; ++i, value = std::nextafter(value, 0.0)) ExpectClose(value);
  }
}

TEST(PortableLogTest, KeepsItsBits) {
  EXPECT_EQ(std::bit_cast<uint64_t>(PortableLog(2.0)), std::bit_cast<uint64_t>(0x1.62e42fefa39efp-1));
  EXPECT_EQ(std::bit_cast<uint64_t>(PortableLog(10.0)), std::bit_cast<uint64_t>(0x1.26bb1bbb55516p+1));
  static_assert(PortableLog(1.0) == 0.0);
}

}  // namespace
}  // namespace tandem::model

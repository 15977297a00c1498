// Proves the number formats against their definitions, written with ldexp: every code, and every rounding boundary of
// E4M3. Does not test vectorised decoding (reference/lane_kernels_test.cc).
#include "kernels/dtypes.h"

#include <cmath>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace tandem::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The format's definition: 1-4-3, bias 7, exponent 0 is subnormal.
double E4m3Value(int code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(E4m3Test, EveryCodeHasItsDefinedValue) {
  for (int code = 0; code < 256; ++code) {
    const float value = ToFloat(E4m3{static_cast<uint8_t>(code)});
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(value, E4m3Value(code)) << code;
      EXPECT_EQ(std::signbit(value), (code & 0x80) != 0) << code;
    }
  }
}

TEST(E4m3Test, EveryFiniteCodeComesBack) {
  for (int code = 0; code < 256; ++code) {
    const E4m3 value{static_cast<uint8_t>(code)};
    EXPECT_EQ(ToE4m3(ToFloat(value)), value) << code;  // holds for the two NaN codes as well
  }
}

TEST(E4m3Test, RoundsToNearestAndTiesToEvenBetweenAllNeighbours) {
  for (int code = 0; code < 0x7e; ++code) {
    const float middle = static_cast<float>((E4m3Value(code) + E4m3Value(code + 1)) / 2);
    const int even = code % 2 == 0 ? code : code + 1;
    for (int sign : {0, 0x80}) {
      const float signed_middle = sign == 0 ? middle : -middle;
      const float towards_zero = std::nextafter(signed_middle, 0.0f);
      const float away = std::nextafter(signed_middle, sign == 0 ? kInfinity : -kInfinity);
      EXPECT_EQ(ToE4m3(signed_middle).bits, sign | even) << code;
      EXPECT_EQ(ToE4m3(towards_zero).bits, sign | code) << code;
      EXPECT_EQ(ToE4m3(away).bits, sign | (code + 1)) << code;
    }
  }
}

TEST(E4m3Test, SaturatesInsteadOfOverflowing) {
  for (float value : {448.0f, 449.0f, 463.9f, 464.0f, 480.0f, 1e9f, std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(ToE4m3(value).bits, 0x7e) << value;
    EXPECT_EQ(ToE4m3(-value).bits, 0xfe) << value;
  }
}

TEST(E4m3Test, TinyValuesBecomeZeroOfTheirSign) {
  for (float value : {0.0f, 0x1p-149f, 1e-30f, 0x1p-11f, 0x1p-10f}) {  // 2^-10 is a tie: even is zero
    EXPECT_EQ(ToE4m3(value).bits, 0x00) << value;
    EXPECT_EQ(ToE4m3(-value).bits, 0x80) << value;
  }
}

TEST(E4m3Test, NanStaysNan) {
  EXPECT_EQ(ToE4m3(kNan).bits & 0x7f, 0x7f);
  EXPECT_EQ(ToE4m3(-kNan).bits & 0x7f, 0x7f);
}

TEST(Bf16Test, EveryCodeComesBack) {
  for (int bits = 0; bits < 65536; ++bits) {
    const Bf16 value{static_cast<uint16_t>(bits)};
    const float wide = ToFloat(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToBf16(wide)))) << bits;
    } else {
      EXPECT_EQ(ToBf16(wide), value) << bits;
    }
  }
}

TEST(Bf16Test, RoundsToNearestAndTiesToEvenBetweenAllNeighbours) {
  for (int bits = 0; bits < 0x7f7f; ++bits) {  // every pair of finite positive neighbours
    const double low = ToFloat(Bf16{static_cast<uint16_t>(bits)});
    const double high = ToFloat(Bf16{static_cast<uint16_t>(bits + 1)});
    const float middle = static_cast<float>((low + high) / 2);
    const int even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(ToBf16(middle).bits, even) << bits;
    ASSERT_EQ(ToBf16(-middle).bits, 0x8000 | even) << bits;
    ASSERT_EQ(ToBf16(std::nextafter(middle, 0.0f)).bits, bits) << bits;
    ASSERT_EQ(ToBf16(std::nextafter(middle, kInfinity)).bits, bits + 1) << bits;
  }
}

TEST(Bf16Test, OverflowsToInfinityAndKeepsNan) {
  EXPECT_EQ(ToBf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(ToBf16(-kInfinity).bits, 0xff80);
  EXPECT_TRUE(std::isnan(ToFloat(ToBf16(std::bit_cast<float>(0x7f800001u)))));  // must not round to infinity
  EXPECT_TRUE(std::isnan(ToFloat(ToBf16(std::bit_cast<float>(0xffffffffu)))));  // must not wrap to zero
}

TEST(Ue8m0Test, EveryCodeIsItsPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const float value = Ue8m0ToFloat(static_cast<uint8_t>(code));
    EXPECT_EQ(value, std::ldexp(1.0, code - 127)) << code;
    if (code == 0) continue;  // 2^-127 is subnormal: readable, never written
    EXPECT_TRUE(IsPowerOfTwo(value)) << code;
    EXPECT_EQ(ToUe8m0(value), code);
  }
  EXPECT_TRUE(std::isnan(Ue8m0ToFloat(255)));
}

TEST(Ue8m0Test, RefusesWhatIsNoPowerOfTwo) {
  for (float value : {0.0f, -1.0f, 3.0f, 1.0000001f, 0x1p-127f, kInfinity, kNan}) {
    EXPECT_FALSE(IsPowerOfTwo(value)) << value;
  }
}

TEST(CeilPowerOfTwoTest, RoundsUpAndLeavesPowersAlone) {
  std::mt19937 random(1);
  for (int exponent = -126; exponent < 127; ++exponent) {
    const float power = std::ldexp(1.0f, exponent);
    EXPECT_EQ(CeilPowerOfTwo(power), power);
    EXPECT_EQ(CeilPowerOfTwo(std::nextafter(power, kInfinity)), 2 * power);
    EXPECT_EQ(CeilPowerOfTwo(std::nextafter(2 * power, 0.0f)), 2 * power);
    const float between = power * std::uniform_real_distribution<float>(1.001f, 1.999f)(random);
    EXPECT_EQ(CeilPowerOfTwo(between), 2 * power);
  }
  EXPECT_EQ(CeilPowerOfTwo(448.0f * (1.0f / 448.0f)), 1.0f);
}

}  // namespace
}  // namespace tandem::kernels

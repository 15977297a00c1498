// The narrow number formats, bit by bit: BF16, E4M3 (FP8, no infinity) and UE8M0 (a power of two in one byte).
//
// Storage types are structs, so that a byte of E4M3 never becomes an integer by accident. All conversions from float
// round to nearest, ties to even. Nothing here depends on the machine's instruction set or rounding mode settings.
// Tested by dtypes_test.cc (every code of every format, every rounding boundary of E4M3).
#pragma once

#include <bit>
#include <cstdint>

namespace tandem::kernels {

struct Bf16 {
  uint16_t bits;
  bool operator==(const Bf16&) const = default;
};
struct E4m3 {  // 1 sign, 4 exponent (bias 7), 3 mantissa bits; 0x7f and 0xff are NaN, the largest value is 448
  uint8_t bits;
  bool operator==(const E4m3&) const = default;
};
static_assert(sizeof(Bf16) == 2 && sizeof(E4m3) == 1);

inline constexpr float kE4m3Max = 448.0f;

inline float ToFloat(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

// NaN stays a (quiet) NaN of the same sign; values that round beyond the largest BF16 become infinity.
inline Bf16 ToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return Bf16{static_cast<uint16_t>(is_nan ? quiet_nan : rounded)};
}

// The nearest BF16 value, as a float.
inline float RoundToBf16(float value) { return ToFloat(ToBf16(value)); }

inline float ToFloat(E4m3 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x80u) << 24;
  const uint32_t exponent = (value.bits >> 3) & 0xfu;
  const uint32_t mantissa = value.bits & 0x7u;
  if ((value.bits & 0x7fu) == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 120u) << 23) | (mantissa << 20));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

// Saturates at +-448, infinities included. NaN gives the NaN code of its sign.
inline E4m3 ToE4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 24) & 0x80u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t code;
  if (magnitude > 0x7f800000u) {
    code = 0x7fu;
  } else if (magnitude >= 0x43e00000u) {  // 448 and above
    code = 0x7eu;
  } else if (magnitude >= 0x3c800000u) {  // normal: 2^-6 and above; the carry of rounding moves into the exponent
    code = ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20) - (120u << 3);
  } else {  // subnormal: adding 2^14 leaves the multiple of 2^-9 in the low bits, rounded to nearest even
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) - 0x46800000u;
  }
  return E4m3{static_cast<uint8_t>(sign | code)};
}

// The smallest power of two that is not less than value. value: positive, normal, at most 2^127.
inline float CeilPowerOfTwo(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fffffu) & 0x7f800000u);
}

// UE8M0 byte b means 2^(b - 127); 255 is NaN. Exact both ways for the powers of two from 2^-126 to 2^127.
inline float Ue8m0ToFloat(uint8_t code) {
  if (code == 255) return std::bit_cast<float>(0x7fc00000u);
  if (code == 0) return 0x1p-127f;
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}
// Meaningful only where IsPowerOfTwo(value).
inline uint8_t ToUe8m0(float value) { return static_cast<uint8_t>(std::bit_cast<uint32_t>(value) >> 23); }
// True for positive normal powers of two: the scales that UE8M0 can hold (all but 2^-127).
inline bool IsPowerOfTwo(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return (bits & 0x807fffffu) == 0 && bits != 0 && bits < 0x7f800000u;
}

}  // namespace tandem::kernels

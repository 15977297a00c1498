// exp, log, sine and cosine of our own: the same bits on every machine, which no libm promises.
//
// They use IEEE +, -, *, / and integer operations only, in a fixed order, and rely on -ffp-contract=off. Whatever can
// change a token (softmax, sigmoid, silu, rotary tables, sampling noise) goes through them.
// Tested by portable_math_test.cc against libm in double and long double.
#pragma once

#include <cstdint>

namespace tandem::kernels {

namespace portable_math_internal {

// Works on float with uint32_t and on GCC vectors of them alike: one definition, the same bits in every lane.
//
// x = n * ln 2 + r with |r| <= ln 2 / 2. n is the integer that adding 1.5 * 2^23 leaves in the low bits; ln 2 is split
// so that n * high is exact. exp(r) = 1 + r + r^2 * q(r); q has degree 4, fitted for the relative error of the whole
// (4e-9, the rest is rounding: below 1 ulp).
template <typename Float, typename Uint>
inline __attribute__((always_inline)) Float ExpOf(Float x) {
  constexpr float kShift = 0x1.8p23f;
  const Float shifted = x * 0x1.715476p0f + kShift;
  const Float n = shifted - kShift;
  const Float r = (x - n * 0x1.62p-1f) - n * 0x1.c85fe0p-10f;
  Float q = r * 0x1.687b24p-10f + 0x1.123be6p-7f;
  q = q * r + 0x1.555b5cp-5f;
  q = q * r + 0x1.55548ep-3f;
  q = q * r + 0x1.fffff8p-2f;
  const Float y = (r * r) * q + r + 1.0f;
  // Multiplies by 2^n in two steps, so that n = 128 just below the overflow is reached without an infinite factor.
  const Uint exponent = __builtin_bit_cast(Uint, shifted) << 23;
  const Float scaled = __builtin_bit_cast(Float, __builtin_bit_cast(Uint, y) + exponent - (Uint{} + (1u << 23))) * 2.0f;
  const Float zero = Float{};
  const Float infinity = zero + __builtin_inff();
  const Float bounded = x < -86.0f ? zero : (x > 88.72284f ? infinity : scaled);
  return x == x ? bounded : x;
}

}  // namespace portable_math_internal

// Relative error below 1.2e-7. Below -86 the result is 0 (no subnormals), above 88.72284 infinity; NaN stays NaN.
inline float Exp(float x) { return portable_math_internal::ExpOf<float, uint32_t>(x); }

// Natural logarithm, relative error below 4e-16. Log(0) = -inf, negative arguments and NaN give NaN.
double Log(double x);

struct SineCosine {
  double sine;
  double cosine;
};
// Absolute error below 3e-16 for |x| <= 2^22, which covers every position of a rotary table.
SineCosine SinCos(double x);

}  // namespace tandem::kernels

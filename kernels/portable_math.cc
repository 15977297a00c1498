#include "kernels/portable_math.h"

#include <bit>
#include <limits>

namespace tandem::kernels {
namespace {

// Horner's rule on sum of coefficients[k] * z^k.
template <int kCount>
double Polynomial(const double (&coefficients)[kCount], double z) {
  double sum = coefficients[kCount - 1];
  for (int k = kCount - 2; k >= 0; --k) sum = sum * z + coefficients[k];
  return sum;
}

}  // namespace

// x = m * 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 * atanh((m - 1) / (m + 1)) by its series.
double Log(double x) {
  if (!(x > 0)) return x == 0 ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  if (x == std::numeric_limits<double>::infinity()) return x;
  int64_t exponent = 0;
  if (x < std::numeric_limits<double>::min()) {  // subnormal
    x *= 0x1p54;
    exponent = -54;
  }
  constexpr uint64_t kMantissaMask = 0xfffffffffffffull;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  exponent += static_cast<int64_t>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & kMantissaMask) | 0x3ff0000000000000ull);
  if (mantissa > 0x1.6a09e667f3bcdp0) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double f = mantissa - 1.0;
  const double s = f / (2.0 + f);
  static constexpr double kSeries[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                                       2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  const double z = s * s;
  // 2s = f - s * f exactly in real numbers: f carries the leading digits without error.
  const double tail = s * (z * Polynomial(kSeries, z) - f);
  const double n = static_cast<double>(exponent);
  return n * 0x1.62e42fee00000p-1 + (f + (tail + n * 0x1.a39ef35793c76p-33));
}

SineCosine SinCos(double x) {
  // Quarter turns: pi / 2 in three parts, the first two of 33 bits, so that their products with n are exact.
  constexpr double kRound = 0x1.8p52;
  const double n = (x * 0x1.45f306dc9c883p-1 + kRound) - kRound;
  const double r = ((x - n * 0x1.921fb54400000p0) - n * 0x1.0b4611a600000p-34) - n * 0x1.3198a2e037073p-69;
  static constexpr double kSine[] = {-1.0 / 6,
                                     1.0 / 120,
                                     -1.0 / 5040,
                                     1.0 / 362880,
                                     -1.0 / 39916800,
                                     1.0 / 6227020800.0,
                                     -1.0 / 1307674368000.0,
                                     1.0 / 355687428096000.0};
  static constexpr double kCosine[] = {1.0 / 24,          -1.0 / 720,           1.0 / 40320,           -1.0 / 3628800,
                                       1.0 / 479001600.0, -1.0 / 87178291200.0, 1.0 / 20922789888000.0};
  const double z = r * r;
  const double sine = r + r * (z * Polynomial(kSine, z));
  const double cosine = 1.0 - (0.5 * z - z * (z * Polynomial(kCosine, z)));
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace tandem::kernels

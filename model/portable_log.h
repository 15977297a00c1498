// A natural logarithm made of IEEE additions, multiplications and one division: the same bits on every machine, which
// the C library's does not promise. Relative error below 2^-51. Tested by portable_log_test.cc.
#pragma once

#include <bit>
#include <cstdint>

namespace tandem::model {

// value: positive, finite and normal.
constexpr double PortableLog(double value) {
  // value = m * 2^e with m in [sqrt(1/2), sqrt(2)), so that the series argument stays below 0.172.
  constexpr uint64_t kSqrtHalfBits = 0x3fe6a09e667f3bcdu;
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const int64_t exponent = static_cast<int64_t>(bits - kSqrtHalfBits) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(exponent) << 52));
  // ln m = 2 artanh(s), s = (m - 1) / (m + 1); the series ends where its next term is below 2^-60 of the sum.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double tail = 0.0;
  for (int k = 23; k >= 3; k -= 2) tail = (tail + 1.0 / k) * z;
  // ln 2 in two parts: the high one has zeros at its end, so that exponent * high is exact.
  constexpr double kLn2High = 0x1.62e42fee00000p-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const double e = static_cast<double>(exponent);
  return e * kLn2High + (2.0 * s + (2.0 * s * tail + e * kLn2Low));
}

}  // namespace tandem::model

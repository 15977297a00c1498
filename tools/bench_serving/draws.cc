#include "tools/bench_serving/draws.h"

#include <cmath>

namespace tandem::bench_serving {

uint64_t Draws::Between(uint64_t min, uint64_t max) {
  const uint64_t span = max - min + 1;
  if (span == 0) return bits_();
  // Values that the span does not divide evenly would favour its beginning.
  const uint64_t num_uneven = (UINT64_MAX % span + 1) % span;
  uint64_t value;
  do {
    value = bits_();
  } while (value > UINT64_MAX - num_uneven);
  return min + value % span;
}

double Draws::Exponential(double mean) {
  const double uniform = static_cast<double>(bits_() >> 11) * 0x1p-53;  // [0, 1)
  return -std::log1p(-uniform) * mean;
}

}  // namespace tandem::bench_serving

// Row-parallel sums: fixed segments of the summed axis, so that one rank and several give the same bits
// (docs/kernels/numerics.md). Tested by fp8_linear_test.cc and bf16_linear_test.cc.
#pragma once

#include <cstdint>

#include "kernels/op_border.h"
#include "kernels/ops.h"

namespace tandem::kernels {

// k_segments is 1 or a power of two that cuts the axis into multiples of 128.
inline void CheckSegments(OpBorder& border, int k_segments, int64_t in_dim) {
  const bool is_power = k_segments == 1 || k_segments == 2 || k_segments == 4 || k_segments == 8;
  border.Require(is_power && (k_segments == 1 || in_dim % (k_segments * kQuantGroup) == 0), "k_segments", k_segments,
                 "1, 2, 4 or 8 and cut in_dim into multiples of 128");
}

// The FP32 partials of the segments, added as a balanced binary tree over neighbours: ((0+1)+(2+3))+((4+5)+(6+7)).
inline float SumSegments(const float* partials, int64_t stride, int k_segments) {
  if (k_segments == 1) return partials[0];
  const int half = k_segments / 2;
  return SumSegments(partials, stride, half) + SumSegments(partials + half * stride, stride, half);
}

}  // namespace tandem::kernels

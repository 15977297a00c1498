// y = x * W^T over BF16 operands with FP32 lane sums: the core of Bf16Linear, Bf16LinearF32 and MlaUnabsorbOutput.
// Tested by bf16_linear_test.cc and mla_test.cc.
#pragma once

#include "kernels/ops.h"

namespace tandem::kernels {

// Shapes are checked by the callers: x [rows, in], w [out, in], in a multiple of 16; exactly one output is not null.
// Per output: 16 lanes over the segment, their tree; then the segments' tree.
struct Bf16Multiply {
  Matrix<const Bf16> x;
  Matrix<const Bf16> w;
  int k_segments = 1;
  Matrix<float> y_f32;
  Matrix<Bf16> y_bf16;
};
void MultiplyBf16(const Bf16Multiply& operands);

}  // namespace tandem::kernels

// The shapes of an FP8 block-scaled weight, checked the same way by every op that takes one.
#pragma once

#include <cstdint>

#include "kernels/op_border.h"
#include "kernels/ops.h"

namespace tandem::kernels {

inline void CheckFp8Weight(OpBorder& border, const Fp8Weight& weight, int64_t out_dim, int64_t in_dim) {
  const int64_t row_blocks = (out_dim + kQuantGroup - 1) / kQuantGroup;
  border.Require(in_dim > 0 && in_dim % kQuantGroup == 0, "in_dim", in_dim, "a positive multiple of 128")
      .Shape("weight", weight.weight, {out_dim, in_dim})
      .Shape("weight scale", weight.scale, {row_blocks, in_dim / kQuantGroup});
}

}  // namespace tandem::kernels

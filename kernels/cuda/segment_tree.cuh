// Sums of the segments of a row-parallel layer, added as a balanced binary tree over neighbours while they come one
// after the other: ((0+1)+(2+3))+((4+5)+(6+7)). At most three sums wait, as in a binary counter. kernels/segments.h has
// the same tree for the CPU; docs/kernels/numerics.md says why.
#pragma once

namespace tandem::kernels::cuda {

// kCount sums at once, in registers. Where !kIsUsed there is one segment and nothing to keep.
template <int kCount, bool kIsUsed>
struct SegmentTree {
  // sums: of segment `segment` (ascending from 0). After the last of 1, 2, 4 or 8 segments they are the tree's.
  __device__ void Add(int segment, float (&sums)[kCount]) {
    bool is_carried = true;
#pragma unroll
    for (int level = 0; level < 3; ++level) {
      if (!is_carried) continue;
      if ((segment >> level & 1) != 0) {
#pragma unroll
        for (int k = 0; k < kCount; ++k) sums[k] = __fadd_rn(waiting[level][k], sums[k]);
      } else {
#pragma unroll
        for (int k = 0; k < kCount; ++k) waiting[level][k] = sums[k];
        is_carried = false;
      }
    }
  }
  float waiting[3][kCount];
};
template <int kCount>
struct SegmentTree<kCount, false> {};

}  // namespace tandem::kernels::cuda

// Sums of the segments of a row-parallel layer, added as a balanced binary tree over neighbours while they come one
// after the other: ((0+1)+(2+3))+((4+5)+(6+7)). At most three sums wait, as in a binary counter. kernels/segments.h has
// the same tree for the CPU; docs/kernels/numerics.md says why.
#pragma once

namespace tandem::kernels::cuda {

enum class Waiting {
  kNowhere,    // one segment: nothing to keep
  kRegisters,  // up to 32 sums a thread
  kSpread,     // 64: registers for neighbours, shared memory for pairs, a thread's local memory for the first half
};

// kCount sums of each of a block's threads. Add is called for segments 0, 1, ...; after the last of 1, 2, 4 or 8 the
// sums are the tree's.
template <int kCount, Waiting kWaiting>
struct SegmentTree;

template <int kCount>
struct SegmentTree<kCount, Waiting::kNowhere> {
  __device__ SegmentTree(float*, int) {}
};

template <int kCount>
struct SegmentTree<kCount, Waiting::kRegisters> {
  __device__ SegmentTree(float*, int) {}
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
struct SegmentTree<kCount, Waiting::kSpread> {
  // shared: this thread's first float of [kCount, stride].
  __device__ SegmentTree(float* shared, int stride) : pairs(shared), stride(stride) {}
  __device__ void Add(int segment, float (&sums)[kCount]) {
    if ((segment & 1) == 0) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) single[k] = sums[k];
      return;
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) sums[k] = __fadd_rn(single[k], sums[k]);
    if ((segment & 2) == 0) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) pairs[k * stride] = sums[k];
      return;
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) sums[k] = __fadd_rn(pairs[k * stride], sums[k]);
    if ((segment & 4) == 0) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) half[k] = sums[k];
      return;
    }
#pragma unroll
    for (int k = 0; k < kCount; ++k) sums[k] = __fadd_rn(half[k], sums[k]);
  }
  float single[kCount];
  float* pairs;
  int stride;
  volatile float half[kCount];  // used once a tile; volatile keeps it out of registers
};

}  // namespace tandem::kernels::cuda

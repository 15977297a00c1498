// Sums along an outer axis, one accumulator per element, each term by a fused multiply-add.
// AddOuterPairs: both factors in BF16, y[i][c] += over pairs t ascending of p[i][2t + 1] * v[2t + 1][c], then
// p[i][2t] * v[2t][c]: queries times W_UK. AddOuterFloats: y[i][c] = y[i][c] * factor[i], then += p[i][j] * v[j][c] for
// j ascending: probabilities, which BF16 would coarsen, times values. Included by *_level.cc alone. Tested by
// levels_test.cc.
#pragma once

#include <cstdint>

#include "kernels/lanes.h"

namespace tandem::kernels::cpu {
namespace TANDEM_LEVEL {

inline constexpr int kOuterColumns = 4 * kLanes;  // of a tile

#if defined(__AVX512F__)
inline constexpr int kOuterRows = 4;
#elif defined(__AVX2__)
inline constexpr int kOuterRows = 1;
#else
inline constexpr int kOuterRows = 1;
#endif

// target[c] = the pair (even[c], odd[c]) for count columns, a multiple of 16.
TANDEM_LANES_INLINE void InterleaveRows(const uint16_t* even, const uint16_t* odd, int64_t count, uint32_t* target) {
  for (int64_t c = 0; c < count; c += kLanes) {
    const UintParts low = LoadHalves(even + c), high = LoadHalves(odd + c);
    PairLanes pairs;
#pragma GCC unroll 4
    for (int p = 0; p < kNativeParts; ++p) pairs.part[p] = low.part[p] | (high.part[p] << 16);
    StorePairs(target + c, pairs);
  }
}

// kOuterColumns columns of kRows rows. p: pairs of row i at p + i * p_stride; v: pairs of columns, v_stride apart.
template <int kRows>
TANDEM_LANES_INLINE void AddOuterPairsTile(const uint32_t* p, int64_t p_stride, const uint32_t* v, int64_t v_stride,
                                           int num_pairs, float* y, int64_t y_stride) {
  constexpr int kVectors = kOuterColumns / kLanes;
  Lanes sums[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    for (int c = 0; c < kVectors; ++c) sums[i][c] = LoadLanes(y + i * y_stride + c * kLanes);
  }
  for (int t = 0; t < num_pairs; ++t) {
    PairLanes values[kVectors];
    for (int c = 0; c < kVectors; ++c) values[c] = LoadPairs(v + t * v_stride + c * kLanes);
    for (int i = 0; i < kRows; ++i) {
      const PairLanes pair = BroadcastPair(p + i * p_stride + t);
      for (int c = 0; c < kVectors; ++c) sums[i][c] = AddDotOfPairs(sums[i][c], pair, values[c]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int c = 0; c < kVectors; ++c) StoreLanes(y + i * y_stride + c * kLanes, sums[i][c]);
  }
}

TANDEM_LANES_INLINE void AddOuterPairs(const uint32_t* p, int64_t p_stride, const uint32_t* v, int64_t v_stride,
                                       int num_pairs, int64_t num_rows, float* y, int64_t y_stride) {
  int64_t i = 0;
  for (; i + kOuterRows <= num_rows; i += kOuterRows) {
    AddOuterPairsTile<kOuterRows>(p + i * p_stride, p_stride, v, v_stride, num_pairs, y + i * y_stride, y_stride);
  }
  for (; i < num_rows; ++i) {
    AddOuterPairsTile<1>(p + i * p_stride, p_stride, v, v_stride, num_pairs, y + i * y_stride, y_stride);
  }
}

template <int kRows>
TANDEM_LANES_INLINE void AddOuterFloatsTile(const float* p, int64_t p_stride, const float* v, int64_t v_stride,
                                            int count, const float* factors, float* y, int64_t y_stride) {
  constexpr int kVectors = kOuterColumns / kLanes;
  Lanes sums[kRows][kVectors];
  for (int i = 0; i < kRows; ++i) {
    const Lanes factor = BroadcastLanes(factors[i]);
    for (int c = 0; c < kVectors; ++c) sums[i][c] = LoadLanes(y + i * y_stride + c * kLanes) * factor;
  }
  for (int j = 0; j < count; ++j) {
    Lanes values[kVectors];
    for (int c = 0; c < kVectors; ++c) values[c] = LoadLanes(v + j * v_stride + c * kLanes);
    for (int i = 0; i < kRows; ++i) {
      const Lanes weight = BroadcastLanes(p[i * p_stride + j]);
      for (int c = 0; c < kVectors; ++c) sums[i][c] = FusedMultiplyAdd(weight, values[c], sums[i][c]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int c = 0; c < kVectors; ++c) StoreLanes(y + i * y_stride + c * kLanes, sums[i][c]);
  }
}

TANDEM_LANES_INLINE void AddOuterFloats(const float* p, int64_t p_stride, const float* v, int64_t v_stride, int count,
                                        const float* factors, int64_t num_rows, float* y, int64_t y_stride) {
  int64_t i = 0;
  for (; i + kOuterRows <= num_rows; i += kOuterRows) {
    AddOuterFloatsTile<kOuterRows>(p + i * p_stride, p_stride, v, v_stride, count, factors + i, y + i * y_stride,
                                   y_stride);
  }
  for (; i < num_rows; ++i) {
    AddOuterFloatsTile<1>(p + i * p_stride, p_stride, v, v_stride, count, factors + i, y + i * y_stride, y_stride);
  }
}

}  // namespace TANDEM_LEVEL
}  // namespace tandem::kernels::cpu

// What the two kernels of sparse attention share: arguments, scores, weights, and how an output leaves. Both must come
// to the same bits, so every step of the arithmetic stands here once.
#pragma once

#include <cmath>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx_attention.cuh"
#include "kernels/cuda/sparse_mla_loader.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kvcache/kv_layout.h"

namespace tandem::kernels::cuda {

inline constexpr int kHeadTile = 64;                  // rows of a warpgroup's product
inline constexpr int kTileBytes = kEntryBlock * 128;  // 64 rows of 64 BF16 values

struct SparseMlaParams {
  const uint16_t* q_latent;
  int64_t q_latent_row_stride, q_latent_head_stride;
  const uint16_t* q_rope;
  int64_t q_rope_row_stride, q_rope_head_stride;
  float scale_log2;  // softmax_scale * log2(e)
  const int32_t* indices;
  int64_t indices_stride;
  int k;
  const int32_t* page_tables;
  int64_t page_tables_stride;
  const int32_t* sequence;
  const uint8_t* pages;
  int64_t page_stride;
  uint16_t* out;
  int64_t out_row_stride, out_head_stride;
  int num_heads;
  int head_tiles, head_rows;          // blocks, or clusters, of a row, and heads of each
  bool q_is_aligned, out_is_aligned;  // to 16 bytes and to 4
};

__device__ __forceinline__ uint4 LoadQueryChunk(const uint16_t* from, bool is_aligned) {
  if (is_aligned) return __ldg(reinterpret_cast<const uint4*>(from));
  uint32_t words[4];
  for (int i = 0; i < 4; ++i) words[i] = from[2 * i] | uint32_t{from[2 * i + 1]} << 16;
  return {words[0], words[1], words[2], words[3]};
}

// Heads [first_head, first_head + 64) of which num_heads are loaded, the others zeros, as kSubtiles tiles; by
// kNumThreads threads, which must meet afterwards and put a proxy fence before their products.
template <int kNumThreads>
__device__ __forceinline__ void LoadQueries(const SparseMlaParams& p, int64_t row, int first_head, int num_heads,
                                            int thread, uint8_t* q) {
  constexpr int kChunks = kSubtiles * kHeadTile * 8, kAtOnce = 9;
  static_assert(kChunks % (kNumThreads * kAtOnce) == 0);
  for (int begin = thread; begin < kChunks; begin += kNumThreads * kAtOnce) {
    uint4 chunks[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = begin + u * kNumThreads, chunk = i % 8, subtile = i / 8 % kSubtiles, head = i / 8 / kSubtiles;
      chunks[u] = {0, 0, 0, 0};
      if (head >= num_heads) continue;
      const uint16_t* from =
          subtile < kSubtiles - 1
              ? p.q_latent + row * p.q_latent_row_stride + (first_head + head) * p.q_latent_head_stride + subtile * 64
              : p.q_rope + row * p.q_rope_row_stride + (first_head + head) * p.q_rope_head_stride;
      chunks[u] = LoadQueryChunk(from + chunk * 8, p.q_is_aligned);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = begin + u * kNumThreads, chunk = i % 8, subtile = i / 8 % kSubtiles, head = i / 8 / kSubtiles;
      *reinterpret_cast<uint4*>(q + subtile * kTileBytes + ptx::SwizzledOffset(head, chunk)) = chunks[u];
    }
  }
}

// Of a block of entries: the scores times scale_log2 of this thread's two heads; -inf beyond the list's `left` entries.
__device__ __forceinline__ void Score(const uint8_t* q, const uint8_t* entries, float scale_log2, int left, int lane,
                                      float (&s)[32]) {
  const uint64_t q_tile = ptx::TileDescriptor(q, 16, 1024), keys = ptx::TileDescriptor(entries, 16, 1024);
  wgmma::Touch(s);
  wgmma::Fence();
#pragma unroll
  for (int step = 0; step < kSubtiles * 4; ++step) {
    const uint64_t to = step / 4 * (kTileBytes / 16) + step % 4 * 2;
    wgmma::Multiply<wgmma::Format::kBf16, 64>(s, q_tile + to, keys + to, step > 0);
  }
  wgmma::Commit();
  wgmma::Wait<0>();
  wgmma::Touch(s);
#pragma unroll
  for (int i = 0; i < 32; ++i) s[i] = __fmul_rn(s[i], scale_log2);
  if (left >= kEntryBlock) return;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= left) s[i] = -INFINITY;
  }
}

// The largest score of the thread's first (half 0) or second head in the block; four threads share a head.
__device__ __forceinline__ float LargestScore(const float (&s)[32], int half) {
  float largest = -INFINITY;
#pragma unroll
  for (int i = 2 * half; i < 32; i += 4) largest = fmaxf(largest, fmaxf(s[i], s[i + 1]));
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
  return fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
}

// Turns scores into weights 2^(score - maximum) and returns their sum over the block.
__device__ __forceinline__ float Weigh(float (&s)[32], int half, float maximum) {
  float even = 0, odd = 0;
#pragma unroll
  for (int i = 2 * half; i < 32; i += 4) {
    s[i] = ptx::Exp2(s[i] - maximum);
    s[i + 1] = ptx::Exp2(s[i + 1] - maximum);
    even += s[i];
    odd += s[i + 1];
  }
  float sum = even + odd;
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

// The online softmax of one head.
struct SoftmaxState {
  float maximum = -INFINITY, sum = 0;
  // To the maximum of one more block; returns the factor of what was summed before.
  __device__ __forceinline__ float Raise(float block_maximum) {
    const float before = maximum;
    maximum = fmaxf(maximum, block_maximum);
    return ptx::Exp2(before - maximum);
  }
  __device__ __forceinline__ void Add(float factor, float block_sum) { sum = fmaf(sum, factor, block_sum); }
};

// The weights as BF16 in the places of operand A, [step of 16 entries][register].
__device__ __forceinline__ void PackWeights(const float (&s)[32], uint32_t (&weights)[4][4]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) weights[i / 4][i % 4] = ptx::PackBf16(s[2 * i], s[2 * i + 1]);
}
// As rows g and g + 8 of a tile in shared memory.
__device__ __forceinline__ void StoreWeights(const uint32_t (&weights)[4][4], int g, int c, uint8_t* p) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    *reinterpret_cast<uint32_t*>(p + ptx::SwizzledOffset(g, j) + c * 4) = weights[j / 2][j % 2 * 2];
    *reinterpret_cast<uint32_t*>(p + ptx::SwizzledOffset(g + 8, j) + c * 4) = weights[j / 2][j % 2 * 2 + 1];
  }
}

// o[4j], o[4j + 1] are of the thread's first head, o[4j + 2], o[4j + 3] of its second. A factor of 1 changes nothing.
template <int kCount>
__device__ __forceinline__ void Rescale(float (&o)[kCount], float first, float second) {
  if (__all_sync(0xffffffffu, first == 1.0f && second == 1.0f)) return;
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
    o[4 * j] *= first;
    o[4 * j + 1] *= first;
    o[4 * j + 2] *= second;
    o[4 * j + 3] *= second;
  }
}

__device__ __forceinline__ void StorePair(uint16_t* to, uint32_t pair, bool is_aligned) {
  if (is_aligned) {
    *reinterpret_cast<uint32_t*>(to) = pair;
  } else {
    to[0] = static_cast<uint16_t>(pair);
    to[1] = static_cast<uint16_t>(pair >> 16);
  }
}

// Columns from first_column of heads first_head + g and + g + 8, those below end_head: o over the sums.
template <int kCount>
__device__ __forceinline__ void StoreOutput(const SparseMlaParams& p, int64_t row, int first_head, int end_head,
                                            int first_column, int g, int c, const float (&o)[kCount], float first_sum,
                                            float second_sum) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int head = first_head + g + half * 8;
    if (head >= end_head) break;
    uint16_t* to = p.out + row * p.out_row_stride + head * p.out_head_stride + first_column + c * 2;
    const float inverse = 1.0f / (half == 0 ? first_sum : second_sum);
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
      StorePair(to + 8 * j, ptx::PackBf16(o[4 * j + 2 * half] * inverse, o[4 * j + 2 * half + 1] * inverse),
                p.out_is_aligned);
    }
  }
}

// How many entries a list has: -1 stands only behind it. All threads of the block.
template <int kThreads>
__device__ __forceinline__ int CountEntries(const int32_t* list, int k, int thread, int (&warp_counts)[kThreads / 32]) {
  int count = 0;
#pragma unroll 6
  for (int i = thread; i < k; i += kThreads) count += __ldg(list + i) >= 0;
  count = __reduce_add_sync(0xffffffffu, count);
  if (thread % 32 == 0) warp_counts[thread / 32] = count;
  __syncthreads();
  count = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) count += warp_counts[w];
  return count;
}

// The kernel for so few rows that one block a row and 64 heads leaves most multiprocessors idle.
bool IsForFewRows(const SparseMlaParams& params, int64_t num_rows);
absl::Status SparseMlaOfFewRows(Stream stream, const SparseMlaParams& params, bool is_bf16, int64_t num_rows);

}  // namespace tandem::kernels::cuda

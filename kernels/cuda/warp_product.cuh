// y = x w^T by tiles of 64 x 64 outputs of a block of four warps: mma.sync on operands that cp.async brings through
// shared memory, three steps of 128 bytes of the summed axis deep.
//
// The order of an output's sum is a matter of the summed axis alone: each step of 128 bytes is summed by the tensor
// cores from zero, in four instructions of 32 bytes, ascending; its sum, times x_scale * w_scale for E4M3, is added to
// an FP32 sum of the segment; segments are added as a binary tree over neighbours. No bit depends on the rows beside
// it.
//
// Cost: 2 num_rows out_dim in_dim FLOP; x is read out_dim / 64 times, w num_rows / 64 times, mostly from the
// second-level cache. 48 KB of shared memory a block, four blocks a multiprocessor. Rows beyond the end are zeros in
// shared memory and are not stored. Tested by linear_device_test.cc.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/group_tiles.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/segment_tree.cuh"

namespace tandem::kernels::cuda {

inline constexpr int kWarpTile = 64;  // rows of x and of w of a block
inline constexpr int kWarpThreads = 128;
inline constexpr int kWarpStages = 3;

enum class Operands {
  kE4m3,            // with scales
  kBf16,            // w as [out_dim, in_dim]
  kBf16Transposed,  // w as [in_dim, out_dim]
};

__device__ inline void StorePair(__nv_bfloat16* y, float first, float second, bool is_paired, bool has_second) {
  if (is_paired && has_second) {
    *reinterpret_cast<__nv_bfloat162*>(y) = __floats2bfloat162_rn(first, second);
    return;
  }
  y[0] = __float2bfloat16_rn(first);
  if (has_second) y[1] = __float2bfloat16_rn(second);
}
__device__ inline void StorePair(float* y, float first, float second, bool is_paired, bool has_second) {
  if (is_paired && has_second) {
    *reinterpret_cast<float2*>(y) = make_float2(first, second);
    return;
  }
  y[0] = first;
  if (has_second) y[1] = second;
}

// A tile of 64 rows of 128 bytes in shared memory: 16-byte chunk c of row r stands at chunk c ^ (r % 8), so that eight
// rows' equal chunks lie in different banks.
__device__ inline uint32_t ChunkAddress(uint32_t tile, int row, int chunk) {
  return tile + row * kStepBytes + ((chunk ^ (row & 7)) << 4);
}

// Grid: (tiles of w, tiles of x, heads). Output: __nv_bfloat16 or float.
template <Operands kOperands, typename Output, bool kIsSegmented>
__global__ void __launch_bounds__(kWarpThreads) WarpProductKernel(const ProductTask task) {
  constexpr int kTileBytes = kWarpTile * kStepBytes;
  __shared__ alignas(128) uint8_t shared[kWarpStages * 2 * kTileBytes];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int64_t out_begin = int64_t{blockIdx.x} * kWarpTile;
  RowTile tile = {.group = static_cast<int>(blockIdx.z),
                  .begin = int64_t{blockIdx.y} * kWarpTile,
                  .end = min(task.num_rows, (int64_t{blockIdx.y} + 1) * kWarpTile)};
  if (task.group_offsets != nullptr) {
    tile = FindRowTile(task.group_offsets, task.num_groups, blockIdx.y, kWarpTile);
    if (tile.begin == tile.end) return;
  }
  const int num_steps = static_cast<int>((task.in_bytes + kStepBytes - 1) / kStepBytes);
  const uint8_t* w = task.w + tile.group * task.w_group_stride;
  const uint8_t* x = task.x + blockIdx.z * task.x_head_stride;

  // Each thread copies chunk `chunk` of four rows of either operand.
  const int chunk = thread % 8;
  const uint8_t* x_from[4];
  const uint8_t* w_from[4];
  bool is_x_row[4], is_w_row[4];
  for (int i = 0; i < 4; ++i) {
    const int64_t row = tile.begin + thread / 8 + i * 16;
    is_x_row[i] = row < tile.end;
    const int64_t x_row = !is_x_row[i] ? 0 : task.x_rows != nullptr ? task.x_rows[row] : row;
    x_from[i] = x + x_row * task.x_stride + chunk * 16;
    if constexpr (kOperands == Operands::kBf16Transposed) {
      is_w_row[i] = out_begin + chunk * 8 < task.out_dim;  // the rows are steps of the summed axis
      w_from[i] = w + (thread / 8 + i * 16) * task.w_stride + (is_w_row[i] ? out_begin + chunk * 8 : 0) * 2;
    } else {
      const int64_t out = out_begin + thread / 8 + i * 16;
      is_w_row[i] = out < task.out_dim;
      w_from[i] = w + (is_w_row[i] ? out : 0) * task.w_stride + chunk * 16;
    }
  }
  const uint32_t shared_begin = ptx::SharedAddress(shared);
  const auto load = [&](int step) {
    if (step < num_steps) {
      const uint32_t x_to = shared_begin + step % kWarpStages * 2 * kTileBytes, w_to = x_to + kTileBytes;
      const int64_t at = int64_t{step} * kStepBytes;
      const bool is_inside = at + chunk * 16 < task.in_bytes;
      for (int i = 0; i < 4; ++i) {
        const int row = thread / 8 + i * 16;
        const bool is_x = is_x_row[i] && is_inside;
        ptx::CopyAsync16(ChunkAddress(x_to, row, chunk), is_x ? x_from[i] + at : task.x, is_x);
        if constexpr (kOperands == Operands::kBf16Transposed) {
          const bool is_w = is_w_row[i] && at / 2 + row < task.in_bytes / 2;
          ptx::CopyAsync16(ChunkAddress(w_to, row, chunk), is_w ? w_from[i] + at / 2 * task.w_stride : task.w, is_w);
        } else {
          const bool is_w = is_w_row[i] && is_inside;
          ptx::CopyAsync16(ChunkAddress(w_to, row, chunk), is_w ? w_from[i] + at : task.w, is_w);
        }
      }
    }
    ptx::CommitCopies();
  };

  // A warp has 32 x 32 outputs: 2 x 4 tiles of 16 x 8.
  const int warp_row = warp / 2 * 32, warp_out = warp % 2 * 32;
  const float* x_scale[4];
  const float* w_scale = nullptr;
  if constexpr (kOperands == Operands::kE4m3) {
    for (int i = 0; i < 4; ++i) {
      const int64_t row = tile.begin + warp_row + lane / 4 + i * 8;
      const int64_t x_row = row >= tile.end ? -1 : task.x_rows != nullptr ? task.x_rows[row] : row;
      x_scale[i] = x_row < 0 ? nullptr : task.x_scale + x_row * task.x_scale_stride;
    }
    w_scale = task.w_scale + tile.group * task.w_scale_group_stride + out_begin / 128 * task.w_scale_stride;
  }
  float sums[32] = {};
  SegmentTree<32, kIsSegmented> tree;
  for (int step = 0; step < kWarpStages - 1; ++step) load(step);
  int steps_left = task.steps_of_segment, segment = 0;
  for (int step = 0; step < num_steps; ++step) {
    ptx::WaitForCopies<kWarpStages - 2>();
    __syncthreads();
    load(step + kWarpStages - 1);
    float scales[4] = {1, 1, 1, 1};
    if constexpr (kOperands == Operands::kE4m3) {
      const float of_block = w_scale[step];
      for (int i = 0; i < 4; ++i) scales[i] = x_scale[i] == nullptr ? 0.0f : x_scale[i][step] * of_block;
    }
    const uint32_t x_tile = shared_begin + step % kWarpStages * 2 * kTileBytes, w_tile = x_tile + kTileBytes;
    float step_sums[2][4][4] = {};
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      uint32_t a[2][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        ptx::LoadMatrices(ChunkAddress(x_tile, warp_row + i * 16 + lane % 16, part * 2 + lane / 16), a[i]);
        if constexpr (kOperands == Operands::kBf16Transposed) {
          const int row = part * 16 + lane / 8 % 2 * 8 + lane % 8;
          ptx::LoadMatricesTransposed(ChunkAddress(w_tile, row, warp_out / 8 + i * 2 + lane / 16), b[i]);
        } else {
          const int row = warp_out + i * 16 + lane / 16 * 8 + lane % 8;
          ptx::LoadMatrices(ChunkAddress(w_tile, row, part * 2 + lane / 8 % 2), b[i]);
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if constexpr (kOperands == Operands::kE4m3) {
            ptx::MultiplyE4m3(step_sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
          } else {
            ptx::MultiplyBf16(step_sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
          }
        }
      }
    }
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      const float step_sum = step_sums[k / 16][k / 4 % 4][k % 4];
      if constexpr (kOperands == Operands::kE4m3) {
        sums[k] = __fmaf_rn(step_sum, scales[k / 16 * 2 + k / 2 % 2], sums[k]);
      } else {
        sums[k] = __fadd_rn(sums[k], step_sum);
      }
    }
    if constexpr (kIsSegmented) {
      if (--steps_left == 0) {
        tree.Add(segment++, sums);
        steps_left = task.steps_of_segment;
        if (segment < task.k_segments) {
          for (float& sum : sums) sum = 0;
        }
      }
    }
  }

  uint8_t* y = static_cast<uint8_t*>(task.y) + blockIdx.z * task.y_head_stride;
  const bool is_paired = (reinterpret_cast<uintptr_t>(y) | task.y_stride) % (2 * sizeof(Output)) == 0;
#pragma unroll
  for (int k = 0; k < 32; k += 2) {
    const int64_t row = tile.begin + warp_row + k / 16 * 16 + k / 2 % 2 * 8 + lane / 4;
    const int64_t out = out_begin + warp_out + k / 4 % 4 * 8 + lane % 4 * 2;
    if (row >= tile.end || out >= task.out_dim) continue;
    auto* to = reinterpret_cast<Output*>(y + row * task.y_stride) + out;
    StorePair(to, sums[k], sums[k + 1], is_paired, out + 1 < task.out_dim);
  }
}

}  // namespace tandem::kernels::cuda

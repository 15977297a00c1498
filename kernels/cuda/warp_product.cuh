// y = x w for w stored along the outputs, as W_UK is: tiles of 64 x 64 outputs of a block of four warps, mma.sync on
// operands that cp.async brings through shared memory, three steps of 64 values of the summed axis deep.
//
// The order of an output's sum is a matter of the summed axis alone: each step of 64 values is summed by the tensor
// cores from zero, in four instructions of 16, ascending; the steps' sums are added in FP32. No bit depends on the rows
// beside it.
//
// Cost: 2 num_rows out_dim in_dim FLOP a head; x is read out_dim / 64 times, w num_rows / 64 times, mostly from the
// second-level cache. 48 KB of shared memory a block, four blocks a multiprocessor.
// Rows beyond the end are zeros in shared memory and are not stored. Tested by mla_projections_device_test.cc.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/product.cuh"
#include "kernels/cuda/ptx.cuh"

namespace tandem::kernels::cuda {

inline constexpr int kWarpTile = 64;  // rows of x and outputs of a block
inline constexpr int kWarpThreads = 128;
inline constexpr int kWarpStages = 3;

// A tile of 64 rows of 128 bytes in shared memory: 16-byte chunk c of row r stands at chunk c ^ (r % 8), so that eight
// rows' equal chunks lie in different banks.
__device__ inline uint32_t ChunkAddress(uint32_t tile, int row, int chunk) {
  return tile + row * kStepBytes + ((chunk ^ (row & 7)) << 4);
}

// Grid: (tiles of outputs, tiles of rows, heads). task.w: [head, in_dim, out_dim].
__global__ void __launch_bounds__(kWarpThreads) WarpProductKernel(const __grid_constant__ ProductTask task) {
  constexpr int kTileBytes = kWarpTile * kStepBytes;
  __shared__ alignas(128) uint8_t shared[kWarpStages * 2 * kTileBytes];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int64_t out_begin = int64_t{blockIdx.x} * kWarpTile, row_begin = int64_t{blockIdx.y} * kWarpTile;
  const int64_t in_dim = task.in_bytes / 2;
  const int num_steps = static_cast<int>((task.in_bytes + kStepBytes - 1) / kStepBytes);
  const uint8_t* x = task.x + blockIdx.z * task.x_head_stride;
  const uint8_t* w = task.w + blockIdx.z * task.w_group_stride;

  // Each thread copies chunk `chunk` of four rows of either operand; the rows of w are of the summed axis.
  const int chunk = thread % 8;
  const int64_t out = out_begin + chunk * 8;
  const uint32_t shared_begin = ptx::SharedAddress(shared);
  const auto load = [&](int step) {
    if (step < num_steps) {
      const uint32_t x_to = shared_begin + step % kWarpStages * 2 * kTileBytes, w_to = x_to + kTileBytes;
      const int64_t at = int64_t{step} * kStepBytes + chunk * 16;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = thread / 8 + i * 16;
        const bool is_x = row_begin + row < task.num_rows && at < task.in_bytes;
        ptx::CopyAsync16(ChunkAddress(x_to, row, chunk), is_x ? x + (row_begin + row) * task.x_stride + at : task.x,
                         is_x);
        const int64_t k = int64_t{step} * (kStepBytes / 2) + row;
        const bool is_w = out < task.out_dim && k < in_dim;
        ptx::CopyAsync16(ChunkAddress(w_to, row, chunk), is_w ? w + k * task.w_stride + out * 2 : task.w, is_w);
      }
    }
    ptx::CommitCopies();
  };

  // A warp has 32 x 32 outputs: 2 x 4 tiles of 16 x 8.
  const int warp_row = warp / 2 * 32, warp_out = warp % 2 * 32;
  float sums[2][4][4] = {};
  for (int step = 0; step < kWarpStages - 1; ++step) load(step);
  for (int step = 0; step < num_steps; ++step) {
    ptx::WaitForCopies<kWarpStages - 2>();
    __syncthreads();
    load(step + kWarpStages - 1);
    const uint32_t x_tile = shared_begin + step % kWarpStages * 2 * kTileBytes, w_tile = x_tile + kTileBytes;
    float step_sums[2][4][4] = {};
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      uint32_t a[2][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        ptx::LoadMatrices(ChunkAddress(x_tile, warp_row + i * 16 + lane % 16, part * 2 + lane / 16), a[i]);
        const int row = part * 16 + lane / 8 % 2 * 8 + lane % 8;
        ptx::LoadMatricesTransposed(ChunkAddress(w_tile, row, warp_out / 8 + i * 2 + lane / 16), b[i]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          ptx::MultiplyBf16(step_sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[i][j][c] = __fadd_rn(sums[i][j][c], step_sums[i][j][c]);
      }
    }
  }

  // out_dim is a multiple of 8, and so are its tiles of 16 x 8: a pair is inside or outside.
  uint8_t* y = static_cast<uint8_t*>(task.y) + blockIdx.z * task.y_head_stride;
  const bool is_paired = (reinterpret_cast<uintptr_t>(y) | task.y_stride) % 4 == 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t row = row_begin + warp_row + i * 16 + half * 8 + lane / 4;
        const int64_t first = out_begin + warp_out + j * 8 + lane % 4 * 2;
        if (row >= task.num_rows || first >= task.out_dim) continue;
        const __nv_bfloat162 pair = __floats2bfloat162_rn(sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
        auto* to = reinterpret_cast<__nv_bfloat16*>(y + row * task.y_stride) + first;
        if (is_paired) {
          *reinterpret_cast<__nv_bfloat162*>(to) = pair;
        } else {
          to[0] = pair.x;
          to[1] = pair.y;
        }
      }
    }
  }
}

}  // namespace tandem::kernels::cuda

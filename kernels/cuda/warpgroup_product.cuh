// y = x w^T on wgmma: one persistent block a multiprocessor, one warpgroup that brings operands, one or two that
// multiply.
//
// The weights are the 64-row operand and the rows of x the other, which may be as narrow as 8: a token alone costs the
// bytes of the weights, not a tile of 64 tokens. Both come as boxes by the copy engine, which swizzles them and fills
// with zeros beyond their edges; rows of x that a list chooses come 16 bytes at a time by the producer's threads,
// swizzled alike, and so do scales, 4 bytes at a time. A ring of as many stages as shared memory holds (4 to 24) keeps
// the memory busy across tiles.
//
// The order of an output's sum is a matter of the summed axis alone: each step of 128 bytes is summed by the tensor
// cores from zero, in four instructions of 32 bytes, ascending; its sum, times x_scale * w_scale for E4M3, is added to
// an FP32 sum of the segment; segments are added as a binary tree over neighbours. Shapes of tiles are free to change:
// that instructions of other widths give the same bits is tested.
//
// Cost: 2 num_rows out_dim in_dim FLOP; weights are read once per tile of tokens, x once per tile of weights, mostly
// from the second-level cache. What shared memory has beyond a tile's last row is not stored.
// Tested by product_device_test.cc, linear_device_test.cc and mla_projections_device_test.cc; docs/kernels/linear.md
// has the numbers.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/product.cuh"
#include "kernels/cuda/product_tiles.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/segment_tree.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace tandem::kernels::cuda {

// A tile of kOuts outputs of kTokens rows: kWarpgroups that multiply, kBlocks of 64 outputs each.
// kCluster blocks with the same outputs of neighbouring tiles of tokens share what they read of the weights.
template <int kWarpgroupsValue, int kBlocksValue, int kTokensValue, Waiting kWaitingValue = Waiting::kNowhere,
          int kStagesMax = 24, int kClusterValue = 1>
struct TileShape {
  static constexpr int kCluster = kClusterValue;
  static constexpr int kWarpgroups = kWarpgroupsValue, kBlocks = kBlocksValue, kTokens = kTokensValue;
  static constexpr int kOuts = kWarpgroups * kBlocks * 64;
  static constexpr int kThreads = (kWarpgroups + 1) * 128;
  static constexpr int kWeightBytes = kOuts * kStepBytes, kTokenBytes = kTokens * kStepBytes;
  static constexpr int kScales = kTokens + 4;  // of a stage: of its tokens, then of each warpgroup's weights
  static constexpr int kStageBytes = kWeightBytes + kTokenBytes + kScales * 4;
  // Where sums of segments wait. Of four blocks of 64 outputs there is no room for any.
  static constexpr Waiting kWaiting = kWaitingValue;
  static_assert(kWaiting == Waiting::kNowhere || kBlocks == 1);
  static constexpr int kWaitingBytes = kWaiting == Waiting::kSpread ? kOuts * kTokens * 4 : 0;
  static constexpr int kMaxSharedBytes = 227 * 1024;
  static constexpr int kFixedBytes = 1024 + (kMaxGroups + 1) * 4 + kStagesMax * 16 + kWaitingBytes;
  static constexpr int kStages = std::min((kMaxSharedBytes - kFixedBytes) / kStageBytes, kStagesMax);
  static constexpr int kSharedBytes = kFixedBytes + kStages * kStageBytes;
  // Two sets of step sums let the tensor cores run while the other set is added up, where registers allow.
  static constexpr bool kIsOverlapped = kBlocks == 1 && kWaiting != Waiting::kSpread;
};

// A place in the ring of stages. Parity: of the phase in which it is filled this time round.
template <int kStages>
struct RingPlace {
  __device__ void Advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
  int stage = 0;
  uint32_t parity = 0;
};

// Where a block's shared memory has what; addresses as instructions take them.
template <typename Shape>
struct SharedPlan {
  __device__ explicit SharedPlan(uint8_t* memory) {
    const uint32_t begin = (ptx::SharedAddress(memory) + 1023) & ~1023u;  // swizzled tiles begin at multiples of 1024
    weights = begin;
    tokens = weights + Shape::kStages * Shape::kWeightBytes;
    scales = tokens + Shape::kStages * Shape::kTokenBytes;
    full = scales + Shape::kStages * Shape::kScales * 4;
    empty = full + Shape::kStages * 8;
    waiting = reinterpret_cast<float*>(memory + (begin - ptx::SharedAddress(memory)) +
                                       Shape::kStages * (Shape::kStageBytes + 16));
    tile_counts = reinterpret_cast<int*>(waiting + Shape::kWaitingBytes / 4);
    scale_values = reinterpret_cast<const float*>(memory + (scales - ptx::SharedAddress(memory)));
  }
  __device__ uint32_t Weights(int stage) const { return weights + stage * Shape::kWeightBytes; }
  __device__ uint32_t Tokens(int stage) const { return tokens + stage * Shape::kTokenBytes; }
  __device__ uint32_t Scales(int stage) const { return scales + stage * Shape::kScales * 4; }
  __device__ uint32_t Full(int stage) const { return full + stage * 8; }
  __device__ uint32_t Empty(int stage) const { return empty + stage * 8; }

  uint32_t weights, tokens, scales, full, empty;
  float* waiting;    // sums of segments
  int* tile_counts;  // [num_groups + 1]
  const float* scale_values;
};

// What a block does: which tiles, and which steps of each.
struct Work {
  int first_tile = 0;
  int tile_stride = 0;
  int step_begin = 0;
  int step_end = 0;
};

// This block's part of a tile that its cluster shares.
template <typename Shape>
__device__ ProductTile FindTile(const TileWalk& walk, int number) {
  ProductTile tile = walk.Find(number);
  if constexpr (Shape::kCluster > 1) {
    tile.row_begin += static_cast<int>(blockIdx.x) % Shape::kCluster * Shape::kTokens;
    if (tile.row_end > tile.row_begin + Shape::kTokens) tile.row_end = tile.row_begin + Shape::kTokens;
  }
  return tile;
}

// Asks for the weights of a step: its own, or its part of the cluster's.
template <typename Shape>
__device__ void CopyWeights(const CUtensorMap& weight_map, const SharedPlan<Shape>& shared, const ProductTile& tile,
                            int step, int stage) {
  const int x = step * kStepBytes, y = static_cast<int>(tile.out_begin);
  if constexpr (Shape::kCluster == 1) {
    ptx::CopyBox(shared.Weights(stage), &weight_map, x, y, tile.group, shared.Full(stage));
  } else {
    const int part = static_cast<int>(blockIdx.x) % Shape::kCluster;
    ptx::CopyBoxToBlocks(shared.Weights(stage) + part * (Shape::kWeightBytes / Shape::kCluster), &weight_map, x,
                         y + part * (Shape::kOuts / Shape::kCluster), tile.group, shared.Full(stage),
                         (1 << Shape::kCluster) - 1);
  }
}

// Before the grid waits for the ones before it: the weights of the first stages do not depend on them. Returns how many
// steps have theirs.
template <typename Shape>
__device__ int CopyFirstWeights(const CUtensorMap& weight_map, const ProductTask& task, const TileWalk& walk,
                                const SharedPlan<Shape>& shared, const Work& work) {
  if (task.group_offsets != nullptr || work.first_tile >= walk.num_tiles()) return 0;
  const ProductTile tile = FindTile<Shape>(walk, work.first_tile);
  const int count = min(work.step_end - work.step_begin, Shape::kStages);
  if (threadIdx.x % 128 == 0) {
    for (int i = 0; i < count; ++i) {
      ptx::ArriveExpectingBytes(shared.Full(i),
                                Shape::kWeightBytes + (task.x_rows != nullptr ? 0 : Shape::kTokenBytes));
      CopyWeights(weight_map, shared, tile, work.step_begin + i, i);
    }
  }
  return count;
}

// The producer's 128 threads: fill stage after stage, tile after tile. num_begun: steps whose weights are asked for.
template <wgmma::Format kFormat, typename Shape>
__device__ void Produce(const CUtensorMap& weight_map, const CUtensorMap& token_map, const ProductTask& task,
                        const TileWalk& walk, const SharedPlan<Shape>& shared, const Work& work, int num_begun) {
  constexpr int kCopies = (Shape::kTokens + 15) / 16;  // of a thread and step
  const int thread = threadIdx.x % 128, chunk = thread % 8;
  const bool has_list = task.x_rows != nullptr;
  const int64_t scale_rows = (task.out_dim + 127) / 128;
  RingPlace<Shape::kStages> place;
  for (int number = work.first_tile; number < walk.num_tiles(); number += work.tile_stride) {
    const ProductTile tile = FindTile<Shape>(walk, number);
    const uint8_t* from[kCopies];  // null: zeros
    if (has_list) {
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const int64_t row = tile.row_begin + thread / 8 + i * 16;
        from[i] = nullptr;
        if (thread / 8 + i * 16 < Shape::kTokens && row < tile.row_end) {
          from[i] = task.x + task.x_rows[row] * task.x_stride + chunk * 16;
        }
      }
    }
    const float* x_scale = nullptr;
    const float* w_scale = nullptr;
    if constexpr (kFormat == wgmma::Format::kE4m3) {
      const int64_t row = tile.row_begin + thread;
      if (thread < Shape::kTokens && row < tile.row_end) {
        x_scale = task.x_scale + (has_list ? task.x_rows[row] : row) * task.x_scale_stride;
      }
      const int64_t scale_row = (tile.out_begin + thread * Shape::kBlocks * 64) / 128;
      if (thread < Shape::kWarpgroups && scale_row < scale_rows) {
        w_scale = task.w_scale + tile.group * task.w_scale_group_stride + scale_row * task.w_scale_stride;
      }
    }
    for (int step = work.step_begin; step < work.step_end; ++step, place.Advance()) {
      ptx::WaitForPhase(shared.Empty(place.stage), place.parity ^ 1);
      const uint32_t full = shared.Full(place.stage);
      if (thread == 0) {
        if (num_begun > 0) {
          --num_begun;
        } else {
          ptx::ArriveExpectingBytes(full, Shape::kWeightBytes + (has_list ? 0 : Shape::kTokenBytes));
          CopyWeights(weight_map, shared, tile, step, place.stage);
        }
        if (!has_list) {
          ptx::CopyBox(shared.Tokens(place.stage), &token_map, step * kStepBytes, static_cast<int>(tile.row_begin),
                       tile.head, full);
        }
      }
      if (has_list) {
        const bool is_inside = int64_t{step} * kStepBytes + chunk * 16 < task.in_bytes;
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
          const int row = thread / 8 + i * 16;
          if (row >= Shape::kTokens) continue;
          const bool is_read = from[i] != nullptr && is_inside;
          ptx::CopyAsync16(shared.Tokens(place.stage) + row * kStepBytes + ((chunk ^ (row & 7)) << 4),
                           is_read ? from[i] + int64_t{step} * kStepBytes : task.x, is_read);
        }
      }
      if constexpr (kFormat == wgmma::Format::kE4m3) {
        const uint32_t scales = shared.Scales(place.stage);
        if (thread < Shape::kTokens) {
          ptx::CopyAsync4(scales + thread * 4, x_scale != nullptr ? x_scale + step : task.x_scale, x_scale != nullptr);
        }
        if (thread < Shape::kWarpgroups) {
          ptx::CopyAsync4(scales + (Shape::kTokens + thread) * 4, w_scale != nullptr ? w_scale + step : task.w_scale,
                          w_scale != nullptr);
        }
      }
      ptx::ArriveAfterCopies(full);
    }
  }
  ptx::CommitCopies();
  ptx::WaitForCopies<0>();
}

// Stores outputs of 64 weights and eight tokens, from registers as wgmma leaves them. y: of the tile's head; column: of
// the first of these tokens in the tile.
__device__ inline void StoreOutputs(const float (&sums)[4], uint8_t* y, const ProductTask& task,
                                    const ProductTile& tile, int64_t out_begin, int column, __nv_bfloat16*) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int64_t row = tile.row_begin + column + lane / 4;
  const bool is_paired = (reinterpret_cast<uintptr_t>(y) | task.y_stride) % 4 == 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(sums[half * 2], sums[half * 2 + 1]);
    const uint32_t bits = ptx::TransposeMatrix(*reinterpret_cast<const uint32_t*>(&pair));
    const int64_t out = out_begin + warp * 16 + half * 8 + lane % 4 * 2;
    if (row >= tile.row_end || out >= task.out_dim) continue;
    auto* to = reinterpret_cast<uint16_t*>(y + row * task.y_stride) + out;
    if (is_paired && out + 1 < task.out_dim) {
      *reinterpret_cast<uint32_t*>(to) = bits;
    } else {
      to[0] = static_cast<uint16_t>(bits);
      if (out + 1 < task.out_dim) to[1] = static_cast<uint16_t>(bits >> 16);
    }
  }
}
__device__ inline void StoreOutputs(const float (&sums)[4], uint8_t* y, const ProductTask& task,
                                    const ProductTile& tile, int64_t out_begin, int column, float*) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int64_t row = tile.row_begin + column + lane % 4 * 2 + c % 2;
    const int64_t out = out_begin + warp * 16 + lane / 4 + c / 2 * 8;
    if (row >= tile.row_end || out >= task.out_dim) continue;
    reinterpret_cast<float*>(y + row * task.y_stride)[out] = sums[c];
  }
}

// One of the multiplying warpgroups. After each tile: finish_tile(tile, sums), sums as [kBlocks][kTokens / 2].
template <wgmma::Format kFormat, typename Shape, typename Finish>
__device__ void Consume(const ProductTask& task, const TileWalk& walk, const SharedPlan<Shape>& shared,
                        const Work& work, const Finish& finish_tile) {
  constexpr int kTokens = Shape::kTokens, kBlocks = Shape::kBlocks, kCount = kTokens / 2;
  const int lane = threadIdx.x % 32, warpgroup = threadIdx.x / 128;

  // The product of a stage and block, from zero.
  const auto multiply = [&](float(&step_sums)[kCount], int stage, int block) {
    const uint32_t weights = shared.Weights(stage) + (warpgroup * kBlocks + block) * 64 * kStepBytes;
    wgmma::Fence();
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      wgmma::Multiply<kFormat, kTokens>(step_sums, wgmma::TileDescriptor(weights, part),
                                        wgmma::TileDescriptor(shared.Tokens(stage), part), part);
    }
    wgmma::Commit();
  };
  const auto add = [&](float(&sums)[kCount], const float(&step_sums)[kCount], int stage) {
    const float* scales = shared.scale_values + stage * Shape::kScales;
    const float of_weights = kFormat == wgmma::Format::kE4m3 ? scales[kTokens + warpgroup] : 1.0f;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      float2 scale = {};
      if constexpr (kFormat == wgmma::Format::kE4m3) {
        scale = *reinterpret_cast<const float2*>(scales + j * 8 + lane % 4 * 2);
        scale = {__fmul_rn(scale.x, of_weights), __fmul_rn(scale.y, of_weights)};
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float& sum = sums[j * 4 + c];
        if constexpr (kFormat == wgmma::Format::kE4m3) {
          sum = __fmaf_rn(step_sums[j * 4 + c], c % 2 == 0 ? scale.x : scale.y, sum);
        } else {
          sum = __fadd_rn(step_sums[j * 4 + c], sum);
        }
      }
    }
  };
  const auto await = [&](const RingPlace<Shape::kStages>& place) {
    ptx::WaitForPhase(shared.Full(place.stage), place.parity);
    if (task.x_rows != nullptr) ptx::FenceAsyncProxy();  // the tokens came by ordinary copies
  };
  const auto release = [&](int stage) {
    __syncwarp();
    if constexpr (Shape::kCluster == 1) {
      if (lane == 0) ptx::Arrive(shared.Empty(stage));
    } else {
      if (lane < Shape::kCluster) ptx::ArriveAtBlock(shared.Empty(stage), lane);
    }
  };

  const int num_steps = work.step_end - work.step_begin;
  RingPlace<Shape::kStages> place;
  for (int number = work.first_tile; number < walk.num_tiles(); number += work.tile_stride) {
    float sums[kBlocks][kCount] = {};
    SegmentTree<kCount, Shape::kWaiting> tree(shared.waiting + threadIdx.x, Shape::kWarpgroups * 128);
    [[maybe_unused]] int steps_left = task.steps_of_segment, segment = 0;
    [[maybe_unused]] const auto end_step = [&](float(&of_segment)[kCount]) {
      if constexpr (Shape::kWaiting != Waiting::kNowhere) {
        if (--steps_left != 0) return;
        tree.Add(segment++, of_segment);
        steps_left = task.steps_of_segment;
        if (segment == task.k_segments) return;
#pragma unroll
        for (float& sum : of_segment) sum = 0;
      }
    };
    if constexpr (Shape::kIsOverlapped) {
      // While one step's sums are added up, the next step runs. The loop is written out in pairs, and its end apart, so
      // that the compiler can prove which sums the tensor cores are at.
      float even[kCount] = {}, odd[kCount] = {};
      const auto finish = [&](float(&step_sums)[kCount], int stage) {
        wgmma::Touch(step_sums);
        add(sums[0], step_sums, stage);
        wgmma::Touch(sums[0]);
        release(stage);
        end_step(sums[0]);
      };
      const auto start_next = [&](float(&step_sums)[kCount]) {
        place.Advance();
        await(place);
        multiply(step_sums, place.stage, 0);
      };
      await(place);
      multiply(even, place.stage, 0);
      int step = 0, stage = place.stage;
      for (; step + 2 < num_steps; step += 2) {
        start_next(odd);
        wgmma::Wait<1>();
        finish(even, stage);
        stage = place.stage;
        start_next(even);
        wgmma::Wait<1>();
        finish(odd, stage);
        stage = place.stage;
      }
      if (step + 1 < num_steps) {
        start_next(odd);
        wgmma::Wait<1>();
        finish(even, stage);
        wgmma::Wait<0>();
        finish(odd, place.stage);
      } else {
        wgmma::Wait<0>();
        finish(even, stage);
      }
      place.Advance();
    } else {
      float step_sums[kCount] = {};
      for (int step = 0; step < num_steps; ++step, place.Advance()) {
        await(place);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          multiply(step_sums, place.stage, block);
          wgmma::Wait<0>();
          wgmma::Touch(step_sums);
          add(sums[block], step_sums, place.stage);
        }
        release(place.stage);
        end_step(sums[0]);
      }
    }
    finish_tile(FindTile<Shape>(walk, number), sums);
  }
}

// What every block does first: its barriers, and the tiles of groups. A barrier of the block must follow.
template <typename Shape>
__device__ void InitBarriers(const SharedPlan<Shape>& shared, const CUtensorMap& weight_map,
                             const CUtensorMap& token_map) {
  const int stage = threadIdx.x;
  if (stage < Shape::kStages) {
    ptx::InitBarrier(shared.Full(stage), 129);  // the producer's threads, and the one that asks for boxes
    ptx::InitBarrier(shared.Empty(stage), Shape::kWarpgroups * 4 * Shape::kCluster);
    ptx::PublishBarriers();
  }
  if (threadIdx.x == 0) {
    ptx::PrefetchMap(&weight_map);
    ptx::PrefetchMap(&token_map);
  }
}

template <wgmma::Format kFormat, typename Output, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    WarpgroupProductKernel(const __grid_constant__ CUtensorMap weight_map,
                           const __grid_constant__ CUtensorMap token_map, const __grid_constant__ ProductTask task) {
  extern __shared__ uint8_t memory[];
  const SharedPlan<Shape> shared(memory);
  const int warpgroup = threadIdx.x / 128;
  InitBarriers(shared, weight_map, token_map);
  ptx::LaunchDependents();
  if (task.group_offsets != nullptr) ptx::WaitForGrids();
  const TileWalk walk(task, shared.tile_counts, Shape::kOuts, Shape::kTokens * Shape::kCluster);
  __syncthreads();
  if constexpr (Shape::kCluster > 1) ptx::SynchronizeCluster();
  const Work work = {.first_tile = static_cast<int>(blockIdx.x) / Shape::kCluster,
                     .tile_stride = static_cast<int>(gridDim.x) / Shape::kCluster,
                     .step_begin = 0,
                     .step_end = static_cast<int>((task.in_bytes + kStepBytes - 1) / kStepBytes)};
  if (warpgroup == Shape::kWarpgroups) {
    if constexpr (Shape::kWarpgroups == 2) ptx::LowerRegisters<56>();
    const int num_begun = CopyFirstWeights(weight_map, task, walk, shared, work);
    ptx::WaitForGrids();
    Produce<kFormat, Shape>(weight_map, token_map, task, walk, shared, work, num_begun);
    if constexpr (Shape::kCluster > 1) ptx::SynchronizeCluster();
    return;
  }
  if constexpr (Shape::kWarpgroups == 2) ptx::RaiseRegisters<224>();
  ptx::WaitForGrids();  // outputs may be what an earlier grid reads
  Consume<kFormat, Shape>(task, walk, shared, work, [&](const ProductTile& tile, const auto& sums) {
    uint8_t* y = static_cast<uint8_t*>(task.y) + tile.head * task.y_head_stride;
#pragma unroll
    for (int block = 0; block < Shape::kBlocks; ++block) {
      const int64_t out_begin = tile.out_begin + (warpgroup * Shape::kBlocks + block) * 64;
#pragma unroll
      for (int j = 0; j < Shape::kTokens / 8; ++j) {
        const float of_eight[4] = {sums[block][j * 4], sums[block][j * 4 + 1], sums[block][j * 4 + 2],
                                   sums[block][j * 4 + 3]};
        StoreOutputs(of_eight, y, task, tile, out_begin, j * 8, static_cast<Output*>(nullptr));
      }
    }
  });
  // Nobody leaves while its cluster's others still write to its shared memory.
  if constexpr (Shape::kCluster > 1) ptx::SynchronizeCluster();
}

}  // namespace tandem::kernels::cuda

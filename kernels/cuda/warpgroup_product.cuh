// y = x w^T on wgmma: one persistent block a multiprocessor, one warpgroup that brings operands, one or two that
// multiply.
//
// The weights are the 64-row operand and the rows of x the other, which may be as narrow as 8: a token alone costs the
// bytes of the weights, not a tile of 64 tokens. Both come as boxes by the copy engine, which swizzles them and fills
// with zeros beyond their edges; rows of x that a list chooses come 16 bytes at a time by threads, swizzled alike. A
// ring of as many stages as shared memory holds (4 to 24) keeps the memory busy across tiles. Scales come a panel of 8
// or 16 steps at a time, already multiplied (token by weights), through a small ring of their own: what a step costs is
// the instructions of the slowest warp, so each warp of the producer has one thing to do.
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

#include <cstdint>

#include "kernels/cuda/product.cuh"
#include "kernels/cuda/product_tiles.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/segment_tree.cuh"
#include "kernels/cuda/warpgroup_plan.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace tandem::kernels::cuda {

// Asks for the weights of a step: its own, or its part of the cluster's.
template <wgmma::Format kFormat, typename Shape>
__device__ void CopyWeights(const CUtensorMap& weight_map, const SharedPlan<Shape>& shared, const ProductTile& tile,
                            int step, int stage) {
  const int x = step * kStepBytes, y = static_cast<int>(tile.out_begin);
  if constexpr (kFormat == wgmma::Format::kBf16Transposed) {
    static_assert(Shape::kCluster == 1);
#pragma unroll
    for (int block = 0; block < Shape::kOuts / 64; ++block) {
      ptx::CopyBox(shared.Weights(stage) + block * 64 * kStepBytes, &weight_map, (y + block * 64) * 2, x / 2,
                   tile.group, shared.Full(stage));
    }
  } else if constexpr (Shape::kCluster == 1) {
    ptx::CopyBox(shared.Weights(stage), &weight_map, x, y, tile.group, shared.Full(stage));
  } else {
    const int part = static_cast<int>(blockIdx.x) % Shape::kCluster;
    ptx::CopyBoxToBlocks(shared.Weights(stage) + part * (Shape::kWeightBytes / Shape::kCluster), &weight_map, x,
                         y + part * (Shape::kOuts / Shape::kCluster), tile.group, shared.Full(stage),
                         (1 << Shape::kCluster) - 1);
  }
}

// By one thread, before the grid waits for the ones before it: the weights of the first stages do not depend on them.
// Returns how many steps have theirs.
template <wgmma::Format kFormat, typename Shape>
__device__ int CopyFirstWeights(const CUtensorMap& weight_map, const ProductTask& task, const TileWalk& walk,
                                const SharedPlan<Shape>& shared, const Work& work) {
  if (task.group_offsets != nullptr || work.first_tile >= walk.num_tiles()) return 0;
  const ProductTile tile = FindTile<Shape>(walk, work.first_tile);
  const int count = min(work.step_end - work.step_begin, Shape::kStages);
  for (int i = 0; i < count; ++i) {
    ptx::ArriveExpectingBytes(shared.Full(i), Shape::kWeightBytes);
    CopyWeights<kFormat>(weight_map, shared, tile, work.step_begin + i, i);
  }
  return count;
}

// By one thread. num_begun: steps whose weights are asked for.
template <wgmma::Format kFormat, typename Shape>
__device__ void ProduceWeights(const CUtensorMap& weight_map, const TileWalk& walk, const SharedPlan<Shape>& shared,
                               const Work& work, int num_begun) {
  RingPlace<Shape::kStages> place;
  for (int number = work.first_tile; number < walk.num_tiles(); number += work.tile_stride) {
    const ProductTile tile = FindTile<Shape>(walk, number);
    for (int step = work.step_begin; step < work.step_end; ++step, place.Advance()) {
      if (num_begun > 0) {
        --num_begun;
        continue;
      }
      ptx::WaitForPhase(shared.Empty(place.stage), place.parity ^ 1);
      ptx::ArriveExpectingBytes(shared.Full(place.stage), Shape::kWeightBytes);
      CopyWeights<kFormat>(weight_map, shared, tile, step, place.stage);
    }
  }
}

// By one thread: rows of x that follow each other.
template <typename Shape>
__device__ void ProduceTokens(const CUtensorMap& token_map, const TileWalk& walk, const SharedPlan<Shape>& shared,
                              const Work& work) {
  RingPlace<Shape::kStages> place;
  for (int number = work.first_tile; number < walk.num_tiles(); number += work.tile_stride) {
    const ProductTile tile = FindTile<Shape>(walk, number);
    for (int step = work.step_begin; step < work.step_end; ++step, place.Advance()) {
      ptx::WaitForPhase(shared.Empty(place.stage), place.parity ^ 1);
      ptx::ArriveExpectingBytes(shared.Full(place.stage), Shape::kTokenBytes);
      ptx::CopyBox(shared.Tokens(place.stage), &token_map, step * kStepBytes, static_cast<int>(tile.row_begin),
                   tile.head, shared.Full(place.stage));
    }
  }
}

// By a warp: rows of x that a list chooses.
template <typename Shape>
__device__ void ProduceListedTokens(const ProductTask& task, const TileWalk& walk, const SharedPlan<Shape>& shared,
                                    const Work& work) {
  constexpr int kRowsAtOnce = 4, kLists = (Shape::kTokens + 31) / 32;
  const int lane = threadIdx.x % 32, first_row = lane / 8, chunk = lane % 8;
  RingPlace<Shape::kStages> place;
  for (int number = work.first_tile; number < walk.num_tiles(); number += work.tile_stride) {
    const ProductTile tile = FindTile<Shape>(walk, number);
    int32_t listed[kLists];  // lane l: the row of x of row l; negative: zeros
#pragma unroll
    for (int i = 0; i < kLists; ++i) {
      const int64_t row = tile.row_begin + i * 32 + lane;
      listed[i] = row < tile.row_end ? task.x_rows[row] : -1;
    }
    for (int step = work.step_begin; step < work.step_end; ++step, place.Advance()) {
      ptx::WaitForPhase(shared.Empty(place.stage), place.parity ^ 1);
      __syncwarp();
      const int64_t column = int64_t{step} * kStepBytes + chunk * 16;
      const bool is_inside = column < task.in_bytes;
      const uint8_t* x = task.x + column;
      const uint32_t to = shared.Tokens(place.stage);
#pragma unroll
      for (int i = 0; i < Shape::kTokens / kRowsAtOnce; ++i) {
        const int row = first_row + i * kRowsAtOnce;
        const int32_t from = __shfl_sync(0xffffffffu, listed[i * kRowsAtOnce / 32], row % 32);
        const bool is_read = from >= 0 && is_inside;
        ptx::CopyAsync16(to + row * kStepBytes + ((chunk ^ (row & 7)) << 4),
                         is_read ? x + from * task.x_stride : task.x, is_read);
      }
      ptx::ArriveAfterCopies(shared.Full(place.stage));
    }
  }
  ptx::CommitCopies();
  ptx::WaitForCopies<0>();
}

// By two warps: panel after panel.
inline constexpr int kScaleThreads = 64;
template <typename Shape>
__device__ void ProduceScales(const ProductTask& task, const TileWalk& walk, const SharedPlan<Shape>& shared,
                              const Work& work) {
  constexpr int kSteps = Shape::kPanelSteps, kTokensAtOnce = kScaleThreads / kSteps;
  constexpr int kRounds = (Shape::kTokens + kTokensAtOnce - 1) / kTokensAtOnce, kBatch = kRounds < 8 ? kRounds : 8;
  const int of_panel = threadIdx.x % kSteps, first_token = threadIdx.x % kScaleThreads / kSteps;
  const int64_t scale_rows = (task.out_dim + 127) / 128;
  RingPlace<Shape::kPanels> place;
  for (int number = work.first_tile; number < walk.num_tiles(); number += work.tile_stride) {
    const ProductTile tile = FindTile<Shape>(walk, number);
    for (int begin = work.step_begin; begin < work.step_end; begin += kSteps, place.Advance()) {
      const int step = begin + of_panel;
      const bool has_step = step < work.step_end;
      float of_weights[Shape::kScaleRows];
#pragma unroll
      for (int r = 0; r < Shape::kScaleRows; ++r) {
        const int64_t row = tile.out_begin / 128 + r;
        of_weights[r] = 0;
        if (has_step && row < scale_rows) {
          of_weights[r] = task.w_scale[tile.group * task.w_scale_group_stride + row * task.w_scale_stride + step];
        }
      }
      ptx::WaitForPhase(shared.PanelEmpty(place.stage), place.parity ^ 1);
      float* scales = shared.Scales(place.stage, of_panel) + first_token;
#pragma unroll 1
      for (int first = 0; first < kRounds; first += kBatch) {
        float of_tokens[kBatch];
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int64_t row = tile.row_begin + first_token + (first + i) * kTokensAtOnce;
          of_tokens[i] = 0;
          if (has_step && row < tile.row_end) {
            of_tokens[i] = task.x_scale[(task.x_rows != nullptr ? task.x_rows[row] : row) * task.x_scale_stride + step];
          }
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const int token = (first + i) * kTokensAtOnce;
          if (first_token + token >= Shape::kTokens) continue;
#pragma unroll
          for (int r = 0; r < Shape::kScaleRows; ++r) {
            scales[r * Shape::kTokens + token] = __fmul_rn(of_tokens[i], of_weights[r]);
          }
        }
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) ptx::Arrive(shared.PanelFull(place.stage));
    }
  }
}

// The producer's 128 threads: what each of its warps brings.
template <wgmma::Format kFormat, typename Shape>
__device__ void Produce(const CUtensorMap& weight_map, const CUtensorMap& token_map, const ProductTask& task,
                        const TileWalk& walk, const SharedPlan<Shape>& shared, const Work& work) {
  const int warp = threadIdx.x / 32 % 4;
  const bool is_first = threadIdx.x % 32 == 0, has_list = task.x_rows != nullptr;
  if (warp == 0 && is_first) {
    const int num_begun = CopyFirstWeights<kFormat>(weight_map, task, walk, shared, work);
    ptx::WaitForGrids();
    ProduceWeights<kFormat>(weight_map, walk, shared, work, num_begun);
  } else if (warp == 1 && (is_first || has_list)) {
    ptx::WaitForGrids();
    if (has_list) {
      ProduceListedTokens(task, walk, shared, work);
    } else {
      ProduceTokens(token_map, walk, shared, work);
    }
  } else if (kFormat == wgmma::Format::kE4m3 && warp >= 2) {
    ptx::WaitForGrids();
    ProduceScales(task, walk, shared, work);
  }
  __syncwarp();
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

  const uint64_t weights = wgmma::TileDescriptor(shared.Weights(0) + warpgroup * kBlocks * 64 * kStepBytes, 0);
  const uint64_t tokens = wgmma::TileDescriptor(shared.Tokens(0), 0);
  constexpr int kPartBytes = kFormat == wgmma::Format::kBf16Transposed ? 16 * kStepBytes : 32;
  // The product of a stage and block, from zero.
  const auto multiply = [&](float(&step_sums)[kCount], int stage, int block) {
    wgmma::Fence();
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      wgmma::Multiply<kFormat, kTokens>(
          step_sums, wgmma::Moved(weights, stage * Shape::kWeightBytes + block * 64 * kStepBytes + part * kPartBytes),
          wgmma::Moved(tokens, stage * Shape::kTokenBytes + part * 32), part);
    }
    wgmma::Commit();
  };
  // Which scales are next; they are released with the last step that reads them.
  RingPlace<Shape::kPanels> panel;
  int of_panel = 0;
  const auto await_scales = [&]() -> const float* {
    if constexpr (kFormat != wgmma::Format::kE4m3) return nullptr;
    if (of_panel == 0) ptx::WaitForPhase(shared.PanelFull(panel.stage), panel.parity);
    return shared.Scales(panel.stage, of_panel) + (kBlocks > 1 ? warpgroup * kTokens : 0) + lane % 4 * 2;
  };
  const auto release_panel = [&] {
    __syncwarp();
    if (lane == 0) ptx::Arrive(shared.PanelEmpty(panel.stage));
    panel.Advance();
    of_panel = 0;
  };
  const auto advance_scales = [&] {
    if constexpr (kFormat == wgmma::Format::kE4m3) {
      if (++of_panel == Shape::kPanelSteps) release_panel();
    }
  };
  // is_first: to sums that are zero, whatever stands there.
  const auto add = [&](float(&sums)[kCount], const float(&step_sums)[kCount], const float* scales,
                       bool is_first = false) {
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      float2 scale = {};
      if constexpr (kFormat == wgmma::Format::kE4m3) scale = *reinterpret_cast<const float2*>(scales + j * 8);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float before = is_first ? 0.0f : sums[j * 4 + c];
        if constexpr (kFormat == wgmma::Format::kE4m3) {
          sums[j * 4 + c] = __fmaf_rn(step_sums[j * 4 + c], c % 2 == 0 ? scale.x : scale.y, before);
        } else {
          sums[j * 4 + c] = __fadd_rn(step_sums[j * 4 + c], before);
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
      const auto add_finished = [&](float(&to)[kCount], float(&step_sums)[kCount], int stage, bool is_first) {
        wgmma::Touch(step_sums);
        release(stage);
        add(to, step_sums, await_scales(), is_first);
        wgmma::Touch(to);
        advance_scales();
      };
      const auto start_next = [&](float(&step_sums)[kCount]) {
        place.Advance();
        await(place);
        multiply(step_sums, place.stage, 0);
      };
      const auto finish = [&](float(&step_sums)[kCount], int stage) {
        add_finished(sums[0], step_sums, stage, false);
        end_step(sums[0]);
      };
      await(place);
      multiply(even, place.stage, 0);
      int stage = place.stage;
      bool is_summed = false;
      if constexpr (Shape::kWaiting == Waiting::kRegisters && (Shape::kWarpgroups == 1 || kTokens <= 32)) {
        if (task.k_segments == 8 && task.steps_of_segment == 2) {
          // Experts' down projections: the program itself is the tree, without a counter and without copies. A
          // segment's first step is under way in `even`; at its end the next segment's is.
          is_summed = true;
          const auto sum_segment = [&](float(&to)[kCount], bool is_last) {
            const auto start_and_add = [&](float(&next)[kCount], float(&step_sums)[kCount], bool is_first) {
              start_next(next);
              wgmma::Wait<1>();
              add_finished(to, step_sums, stage, is_first);
              stage = place.stage;
            };
            start_and_add(odd, even, true);
            if (is_last) {
              wgmma::Wait<0>();
              add_finished(to, odd, stage, false);
            } else {
              start_and_add(even, odd, false);
            }
          };
          const auto join = [&](float(&to)[kCount], const float(&from)[kCount]) {
#pragma unroll
            for (int k = 0; k < kCount; ++k) to[k] = __fadd_rn(to[k], from[k]);
          };
          float pair[kCount], half[kCount], single[kCount];
          sum_segment(sums[0], false);
          sum_segment(single, false);
          join(sums[0], single);
          sum_segment(pair, false);
          sum_segment(single, false);
          join(pair, single);
          join(sums[0], pair);
          sum_segment(half, false);
          sum_segment(single, false);
          join(half, single);
          sum_segment(pair, false);
          sum_segment(single, true);
          join(pair, single);
          join(half, pair);
          join(sums[0], half);
        }
      }
      if (!is_summed) {
        int step = 0;
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
      }
      place.Advance();
    } else {
      float step_sums[kCount] = {};
      for (int step = 0; step < num_steps; ++step, place.Advance()) {
        await(place);
        const float* scales = await_scales();
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          multiply(step_sums, place.stage, block);
          wgmma::Wait<0>();
          wgmma::Touch(step_sums);
          if (block == kBlocks - 1) release(place.stage);
          add(sums[block], step_sums, scales);
        }
        advance_scales();
        end_step(sums[0]);
      }
    }
    if (of_panel != 0) release_panel();
    finish_tile(FindTile<Shape>(walk, number), sums);
  }
}

// What every block does first: its barriers, and the tiles of groups. A barrier of the block must follow.
template <typename Shape>
__device__ void InitBarriers(const SharedPlan<Shape>& shared, bool has_list, const CUtensorMap& weight_map,
                             const CUtensorMap& token_map) {
  const int stage = threadIdx.x;
  if (stage < Shape::kStages) {
    ptx::InitBarrier(shared.Full(stage), 1 + (has_list ? 32 : 1));  // of weights, and of tokens
    ptx::InitBarrier(shared.Empty(stage), Shape::kWarpgroups * 4 * Shape::kCluster);
  }
  if (stage < Shape::kPanels) {
    ptx::InitBarrier(shared.PanelFull(stage), kScaleThreads / 32);
    ptx::InitBarrier(shared.PanelEmpty(stage), Shape::kWarpgroups * 4);
  }
  ptx::PublishBarriers();
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
  InitBarriers(shared, task.x_rows != nullptr, weight_map, token_map);
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
    if constexpr (Shape::kWarpgroups == 2) ptx::LowerRegisters<72>();
    Produce<kFormat, Shape>(weight_map, token_map, task, walk, shared, work);
    if constexpr (Shape::kCluster > 1) ptx::SynchronizeCluster();
    return;
  }
  if constexpr (Shape::kWarpgroups == 2) ptx::RaiseRegisters<216>();
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

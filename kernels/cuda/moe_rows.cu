// MoeGroupRows and MoeCombine: to the experts and back.
//
// MoeGroupRows is a counting sort that keeps the order of equal experts, without atomics, scratch memory or a second
// launch: block e finds the pairs of expert e alone. Each of its warps owns a contiguous part of the pairs; the block
// counts pairs of lower experts (that is where its own begin) and its own pairs per warp, then places them by ballots.
// Every block reads all ids: 4 bytes a pair, from the L2 cache, twice; 32,768 pairs cost 2,048 steps a block.
// MoeCombine: eight values a thread, experts ascending, the CPU's bits. Bytes per row: 2 dim per expert, shared and
// out. Tested by moe_rows_device_test.cc.
#include <cuda_runtime.h>

#include <algorithm>
#include <limits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row_math.cuh"
#include "kernels/op_border.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kGroupThreads = 512;
constexpr int kGroupWarps = kGroupThreads / kWarp;
constexpr int kCombineThreads = 128;

struct GroupTask {
  const int32_t* expert_ids;
  int64_t expert_ids_stride;
  int top_k;
  int num_pairs;
  int num_experts;
  int32_t* group_offsets;
  int32_t* pair_rows;
  int32_t* row_pairs;
  int64_t row_pairs_stride;
};

__global__ void __launch_bounds__(kGroupThreads) GroupKernel(GroupTask task) {
  ptx::LaunchDependents();
  ptx::WaitForGrids();
  __shared__ int lower_of_warp[kGroupWarps], own_of_warp[kGroupWarps];
  const int expert = blockIdx.x;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  // Whole warps' worth of pairs for each warp.
  const int steps = (task.num_pairs + kGroupThreads - 1) / kGroupThreads;
  const int begin = warp * steps * kWarp;
  const bool is_packed = task.expert_ids_stride == task.top_k;
  const auto id_of = [&](int pair) -> int {
    if (pair >= task.num_pairs) return task.num_experts;  // of no expert
    if (is_packed) return task.expert_ids[pair];
    return task.expert_ids[pair / task.top_k * task.expert_ids_stride + pair % task.top_k];
  };
  int lower = 0, own = 0;
#pragma unroll 8
  for (int step = 0; step < steps; ++step) {
    const int id = id_of(begin + step * kWarp + lane);
    lower += id < expert;
    own += id == expert;
  }
  lower = __reduce_add_sync(kAllLanes, lower);
  own = __reduce_add_sync(kAllLanes, own);
  if (lane == 0) lower_of_warp[warp] = lower, own_of_warp[warp] = own;
  __syncthreads();
  int offset = 0, next = 0;  // where the expert's pairs begin, and this warp's among them
  for (int w = 0; w < kGroupWarps; ++w) {
    offset += lower_of_warp[w];
    next += w < warp ? own_of_warp[w] : 0;
  }
  if (threadIdx.x == 0) {
    task.group_offsets[expert] = offset;
    if (expert == task.num_experts - 1) task.group_offsets[task.num_experts] = task.num_pairs;
  }
  if (own == 0) return;
  next += offset;
#pragma unroll 8
  for (int step = 0; step < steps; ++step) {
    const int pair = begin + step * kWarp + lane;
    const bool is_own = id_of(pair) == expert;
    const unsigned lanes = __ballot_sync(kAllLanes, is_own);
    if (is_own) {
      const int place = next + __popc(lanes & ((1u << lane) - 1));
      const int row = pair / task.top_k;
      task.pair_rows[place] = row;
      task.row_pairs[row * task.row_pairs_stride + (pair - row * task.top_k)] = place;
    }
    next += __popc(lanes);
  }
}

struct CombineTask {
  const Bf16* expert_out;
  int64_t expert_out_stride;
  const int32_t* row_pairs;
  int64_t row_pairs_stride;
  const float* weights;
  int64_t weights_stride;
  const Bf16* shared_out;  // or null
  int64_t shared_out_stride;
  Bf16* y;
  int64_t y_stride;
  int top_k;
  int dim;
};

template <bool kIsAligned>
__global__ void __launch_bounds__(kCombineThreads) CombineKernel(CombineTask task) {
  ptx::LaunchDependents();
  const int64_t row = blockIdx.x;
  const int k = (blockIdx.y * kCombineThreads + threadIdx.x) * kVector;
  if (k >= task.dim) return;
  const int32_t* pairs = task.row_pairs + row * task.row_pairs_stride;
  const float* weights = task.weights + row * task.weights_stride;
  Pairs4 shared = {};
  if (task.shared_out != nullptr) shared = LoadPairs<kIsAligned>(task.shared_out + row * task.shared_out_stride + k);
  Floats8 sum = {};
#pragma unroll 8
  for (int j = 0; j < task.top_k; ++j) {
    const Floats8 values = Load8<kIsAligned>(task.expert_out + pairs[j] * task.expert_out_stride + k);
    const float weight = weights[j];
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum.v[i] = __fadd_rn(sum.v[i], __fmul_rn(weight, values.v[i]));
  }
  if (task.shared_out != nullptr) {
    const Floats8 values = Unpack(shared);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum.v[i] = __fadd_rn(sum.v[i], values.v[i]);
  }
  Store8<kIsAligned>(task.y + row * task.y_stride + k, sum);
}

}  // namespace

absl::Status MoeGroupRows(Stream stream, const MoeGroupRowsArgs& args) {
  const auto [num_rows, top_k] = args.expert_ids.shape;
  const int64_t num_experts = args.group_offsets.shape[0] - 1, num_pairs = num_rows * top_k;
  OpBorder border("MoeGroupRows");
  border.Require(num_experts >= 1, "num_experts", num_experts, "at least 1")
      .Require(num_pairs <= std::numeric_limits<int32_t>::max() - kGroupThreads, "num_rows * top_k", num_pairs,
               "below 2^31 - 512")
      .Shape("expert_ids", args.expert_ids, {num_rows, top_k})
      .Shape("group_offsets", args.group_offsets, {num_experts + 1})
      .Shape("pair_rows", args.pair_rows, {num_pairs})
      .Shape("row_pairs", args.row_pairs, {num_rows, top_k});
  if (!border.ok()) return border.status();
  // Without pairs the offsets are zeros all the same.
  const GroupTask task = {.expert_ids = args.expert_ids.data,
                          .expert_ids_stride = args.expert_ids.strides[0],
                          .top_k = static_cast<int>(top_k),
                          .num_pairs = static_cast<int>(num_pairs),
                          .num_experts = static_cast<int>(num_experts),
                          .group_offsets = args.group_offsets.data,
                          .pair_rows = args.pair_rows.data,
                          .row_pairs = args.row_pairs.data,
                          .row_pairs_stride = args.row_pairs.strides[0]};
  return LaunchEarly(stream, "MoeGroupRows", GroupKernel, num_experts, kGroupThreads, task);
}

absl::Status MoeCombine(Stream stream, const MoeCombineArgs& args) {
  const auto [num_rows, dim] = args.y.shape;
  const int64_t num_pairs = args.expert_out.shape[0], top_k = args.row_pairs.shape[1];
  const bool has_shared = !args.shared_out.is_null();
  OpBorder border("MoeCombine");
  border.Require(dim > 0 && dim % 16 == 0, "dim", dim, "a positive multiple of 16")
      .Shape("expert_out", args.expert_out, {num_pairs, dim})
      .Shape("row_pairs", args.row_pairs, {num_rows, top_k})
      .Shape("weights", args.weights, {num_rows, top_k})
      .Shape("y", args.y, {num_rows, dim});
  if (has_shared) border.Shape("shared_out", args.shared_out, {num_rows, dim});
  if (!border.ok()) return border.status();
  if (num_rows == 0) return absl::OkStatus();
  const CombineTask task = {.expert_out = args.expert_out.data,
                            .expert_out_stride = args.expert_out.strides[0],
                            .row_pairs = args.row_pairs.data,
                            .row_pairs_stride = args.row_pairs.strides[0],
                            .weights = args.weights.data,
                            .weights_stride = args.weights.strides[0],
                            .shared_out = args.shared_out.data,
                            .shared_out_stride = args.shared_out.strides[0],
                            .y = args.y.data,
                            .y_stride = args.y.strides[0],
                            .top_k = static_cast<int>(top_k),
                            .dim = static_cast<int>(dim)};
  const bool is_aligned = RowsAreAligned(args.expert_out, 16) && RowsAreAligned(args.y, 16) &&
                          (!has_shared || RowsAreAligned(args.shared_out, 16));
  auto* kernel = is_aligned ? CombineKernel<true> : CombineKernel<false>;
  constexpr int64_t kValuesOfBlock = kCombineThreads * kVector;
  const dim3 grid(static_cast<unsigned>(num_rows), static_cast<unsigned>((dim + kValuesOfBlock - 1) / kValuesOfBlock));
  kernel<<<grid, kCombineThreads, 0, stream>>>(task);
  return LaunchStatus("MoeCombine");
}

}  // namespace tandem::kernels::cuda

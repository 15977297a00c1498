// MoeRouter: one block per row, one thread per expert for scores, one warp per group for its score, one warp for the
// choices. Scores are the CPU's to the last bit (the portable exponential), selection compares them as ordered keys
// with the lower id first, and the sum of the chosen goes in ascending id: so ids and weights are the CPU's bits.
//
// The choosing warp holds experts l, l + 32, ... in lane l, as keys; each choice is two warp-wide reductions. Bytes per
// row: 4 per expert in, 8 per choice out; latency is what counts. Tested by moe_router_device_test.cc.
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row_math.cuh"
#include "kernels/op_border.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kExpertsMax = 1024;
constexpr uint32_t kOut = 0;  // below the key of -inf: no candidate

struct RouterTask {
  const float* logits;
  int64_t logits_stride;
  const float* bias;  // or null
  int num_experts, n_group, topk_group, top_k;
  bool norm_topk_prob;
  float routed_scaling_factor;
  int32_t* expert_ids;
  int64_t expert_ids_stride;
  float* weights;
  int64_t weights_stride;
};

// Of the keys that the lanes hold (their place i of lane l has id i * 32 + l), the largest one with the lowest id:
// takes it out and marks it in `chosen`.
template <int kOfLane>
__device__ __forceinline__ void ChooseLargest(uint32_t (&keys)[kOfLane], uint32_t& chosen) {
  const uint32_t lane = threadIdx.x;
  uint32_t best = 0;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) best = max(best, keys[i]);
  best = __reduce_max_sync(kAllLanes, best);
  uint32_t id = 0xffffffffu;
#pragma unroll
  for (int i = kOfLane - 1; i >= 0; --i) {
    if (keys[i] == best) id = i * kWarp + lane;
  }
  id = __reduce_min_sync(kAllLanes, id);
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const bool is_chosen = id == i * kWarp + lane;
    keys[i] = is_chosen ? kOut : keys[i];
    chosen |= is_chosen ? 1u << i : 0u;
  }
}

// The score of each group, by the warps in turn: its two largest keys' values added, or its largest alone.
__device__ __forceinline__ void ScoreGroups(const RouterTask& task, const uint32_t* keys, uint32_t* group_keys) {
  const int lane = threadIdx.x % kWarp, num_warps = blockDim.x / kWarp;
  const int group_size = task.num_experts / task.n_group;
  for (int group = threadIdx.x / kWarp; group < task.n_group; group += num_warps) {
    uint32_t first = kOut, second = kOut;
    for (int i = lane; i < group_size; i += kWarp) {
      const uint32_t key = keys[group * group_size + i];
      second = max(second, min(first, key));
      first = max(first, key);
    }
    const uint32_t largest = __reduce_max_sync(kAllLanes, first);
    const unsigned holders = __ballot_sync(kAllLanes, first == largest);
    if (lane == __ffs(holders) - 1) first = second;  // one of those that hold it gives it up
    const uint32_t next = __reduce_max_sync(kAllLanes, first);
    if (lane == 0) {
      const bool use_two = task.bias != nullptr && group_size > 1;
      group_keys[group] = use_two ? OrderedKey(__fadd_rn(OfOrderedKey(largest), OfOrderedKey(next))) : largest;
    }
  }
}

// Marks the topk_group best groups in is_kept; of warp 0 alone. kOfLane * 32 is at least n_group.
template <int kOfLane>
__device__ __forceinline__ void ChooseGroups(const RouterTask& task, const uint32_t* group_keys, bool* is_kept) {
  const int lane = threadIdx.x;
  uint32_t keys[kOfLane], kept = 0;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    keys[i] = i * kWarp + lane < task.n_group ? group_keys[i * kWarp + lane] : kOut;
  }
  for (int n = 0; n < task.topk_group; ++n) ChooseLargest(keys, kept);
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) is_kept[i * kWarp + lane] = (kept >> i & 1u) != 0;
}

// kOfLane * 32 is at least the number of experts; the block has as many warps as they need.
template <int kOfLane>
__global__ void __launch_bounds__(kOfLane* kWarp) RouterKernel(RouterTask task) {
  ptx::LaunchDependents();
  ptx::WaitForGrids();
  constexpr int kPlaces = kOfLane * kWarp;
  __shared__ float scores[kPlaces];  // unbiased
  __shared__ float chosen_scores[kPlaces];
  __shared__ uint32_t expert_keys[kPlaces], group_keys[kPlaces];
  __shared__ bool is_kept[kPlaces];
  const int64_t row = blockIdx.x;
  const int thread = threadIdx.x;
  expert_keys[thread] = kOut;
  if (thread < task.num_experts) {
    const float bias = task.bias != nullptr ? task.bias[thread] : 0.0f;
    const float score = PortableSigmoid(task.logits[row * task.logits_stride + thread]);
    scores[thread] = score;
    expert_keys[thread] = OrderedKey(task.bias != nullptr ? __fadd_rn(score, bias) : score);
  }
  __syncthreads();
  if (task.n_group > 1) {
    ScoreGroups(task, expert_keys, group_keys);
    __syncthreads();
  }
  if (thread >= kWarp) return;

  const int lane = thread;
  uint32_t keys[kOfLane];
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) keys[i] = i * kWarp < blockDim.x ? expert_keys[i * kWarp + lane] : kOut;
  if (task.n_group > 1) {
    if (task.n_group <= kWarp) {
      ChooseGroups<1>(task, group_keys, is_kept);
    } else {
      ChooseGroups<kOfLane>(task, group_keys, is_kept);
    }
    __syncwarp();
    const int group_size = task.num_experts / task.n_group;
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int expert = i * kWarp + lane;
      if (expert < task.num_experts && !is_kept[expert / group_size]) keys[i] = kOut;
    }
  }
  uint32_t chosen = 0;
  for (int n = 0; n < task.top_k; ++n) ChooseLargest(keys, chosen);

  int32_t* ids = task.expert_ids + row * task.expert_ids_stride;
  int num_before = 0;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    const bool is_chosen = (chosen >> i & 1u) != 0;
    const uint32_t lanes = __ballot_sync(kAllLanes, is_chosen);
    if (is_chosen) {
      const int expert = i * kWarp + lane;
      const int rank = num_before + __popc(lanes & ((1u << lane) - 1));
      ids[rank] = expert;
      chosen_scores[rank] = scores[expert];
    }
    num_before += __popc(lanes);
  }
  __syncwarp();
  float sum = 0;
  for (int j = 0; j < task.top_k; ++j) sum = __fadd_rn(sum, chosen_scores[j]);  // every lane the same
  sum = __fadd_rn(sum, 1e-20f);
  for (int j = lane; j < task.top_k; j += kWarp) {
    const float weight = task.norm_topk_prob ? __fdiv_rn(chosen_scores[j], sum) : chosen_scores[j];
    task.weights[row * task.weights_stride + j] = __fmul_rn(weight, task.routed_scaling_factor);
  }
}

}  // namespace

absl::Status MoeRouter(Stream stream, const MoeRouterArgs& args) {
  const auto [num_rows, num_experts] = args.logits.shape;
  const int64_t top_k = args.expert_ids.shape[1];
  OpBorder border("MoeRouter");
  border.Require(num_experts >= 1 && num_experts <= kExpertsMax, "num_experts", num_experts, "in [1, 1024]")
      .Require(args.n_group >= 1 && num_experts % args.n_group == 0, "n_group", args.n_group,
               "a divisor of num_experts")
      .Require(args.topk_group >= 1 && args.topk_group <= args.n_group, "topk_group", args.topk_group,
               "in [1, n_group]");
  if (!border.ok()) return border.status();
  const int64_t num_candidates = args.topk_group * (num_experts / args.n_group);
  border.Require(top_k >= 1 && top_k <= num_candidates, "top_k", top_k, "in [1, experts of topk_group groups]")
      .Shape("logits", args.logits, {num_rows, num_experts})
      .Shape("expert_ids", args.expert_ids, {num_rows, top_k})
      .Shape("weights", args.weights, {num_rows, top_k});
  if (!args.bias.is_null()) border.Shape("bias", args.bias, {num_experts});
  if (!border.ok()) return border.status();
  if (num_rows == 0) return absl::OkStatus();
  const RouterTask task = {.logits = args.logits.data,
                           .logits_stride = args.logits.strides[0],
                           .bias = args.bias.data,
                           .num_experts = static_cast<int>(num_experts),
                           .n_group = args.n_group,
                           .topk_group = args.topk_group,
                           .top_k = static_cast<int>(top_k),
                           .norm_topk_prob = args.norm_topk_prob,
                           .routed_scaling_factor = args.routed_scaling_factor,
                           .expert_ids = args.expert_ids.data,
                           .expert_ids_stride = args.expert_ids.strides[0],
                           .weights = args.weights.data,
                           .weights_stride = args.weights.strides[0]};
  auto* kernel = num_experts <= 2 * kWarp    ? RouterKernel<2>
                 : num_experts <= 8 * kWarp  ? RouterKernel<8>
                 : num_experts <= 16 * kWarp ? RouterKernel<16>
                                             : RouterKernel<32>;
  const auto threads = static_cast<unsigned>((num_experts + kWarp - 1) / kWarp * kWarp);
  return LaunchEarly(stream, "MoeRouter", kernel, num_rows, static_cast<int>(threads), task);
}

}  // namespace tandem::kernels::cuda

// MoeGroupRows and MoeCombine: to the experts and back. Tested by moe_rows_test.cc.
#include <algorithm>
#include <limits>

#include "base/status_macros.h"
#include "kernels/lanes.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"

namespace tandem::kernels {

absl::Status MoeGroupRows(const MoeGroupRowsArgs& args) {
  const auto [num_rows, top_k] = args.expert_ids.shape;
  const int64_t num_experts = args.group_offsets.shape[0] - 1;
  const int64_t num_pairs = num_rows * top_k;
  OpBorder border("MoeGroupRows");
  border.Require(num_experts >= 1, "num_experts", num_experts, "at least 1")
      .Require(num_pairs <= std::numeric_limits<int32_t>::max(), "num_rows * top_k", num_pairs, "below 2^31")
      .Shape("expert_ids", args.expert_ids, {num_rows, top_k})
      .Shape("group_offsets", args.group_offsets, {num_experts + 1})
      .Shape("pair_rows", args.pair_rows, {num_pairs})
      .Shape("row_pairs", args.row_pairs, {num_rows, top_k})
      .Ids("expert_ids", args.expert_ids, 0, num_experts);
  RETURN_IF_ERROR(border.status());
  // A counting sort with the offsets themselves as counters: first the sizes, then the starts, which placing the pairs
  // moves to the ends; shifted by one they are the starts again.
  int32_t* offsets = args.group_offsets.data;
  std::fill_n(offsets, num_experts + 1, 0);
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t j = 0; j < top_k; ++j) ++offsets[args.expert_ids.Row(row)[j] + 1];
  }
  for (int64_t e = 0; e < num_experts; ++e) offsets[e + 1] += offsets[e];
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t j = 0; j < top_k; ++j) {
      const int32_t pair = offsets[args.expert_ids.Row(row)[j]]++;
      args.pair_rows.data[pair] = static_cast<int32_t>(row);
      args.row_pairs.Row(row)[j] = pair;
    }
  }
  for (int64_t e = num_experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
  return absl::OkStatus();
}

absl::Status MoeCombine(const MoeCombineArgs& args) {
  const auto [num_rows, dim] = args.y.shape;
  const auto [num_pairs, expert_dim] = args.expert_out.shape;
  const int64_t top_k = args.row_pairs.shape[1];
  const bool has_shared = !args.shared_out.is_null();
  OpBorder border("MoeCombine");
  border.Require(dim > 0 && dim % kLanes == 0, "dim", dim, "a positive multiple of 16")
      .Shape("expert_out", args.expert_out, {num_pairs, dim})
      .Shape("row_pairs", args.row_pairs, {num_rows, top_k})
      .Shape("weights", args.weights, {num_rows, top_k})
      .Shape("y", args.y, {num_rows, dim})
      .Ids("row_pairs", args.row_pairs, 0, num_pairs);
  if (has_shared) border.Shape("shared_out", args.shared_out, {num_rows, dim});
  RETURN_IF_ERROR(border.status());
  for (int64_t row = 0; row < num_rows; ++row) {
    const int32_t* pairs = args.row_pairs.Row(row);
    const float* weights = args.weights.Row(row);
    for (int64_t k = 0; k < dim; k += kLanes) {
      Lanes sum = {};
      for (int64_t j = 0; j < top_k; ++j) {
        sum += BroadcastLanes(weights[j]) * LoadBf16Lanes(args.expert_out.Row(pairs[j]) + k);
      }
      if (has_shared) sum += LoadBf16Lanes(args.shared_out.Row(row) + k);
      StoreBf16Lanes(args.y.Row(row) + k, sum);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels

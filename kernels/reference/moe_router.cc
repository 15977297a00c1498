// MoeRouter: noaux_tc. Selection works on biased scores, weights on unbiased ones. Tested by moe_router_test.cc.
#include <algorithm>
#include <limits>

#include "base/status_macros.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kernels/portable_math.h"

namespace tandem::kernels {
namespace {

constexpr int kExpertsMax = 1024;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Marks the num_chosen largest of count scores, the lower index first on ties. Entries that are marked already stay
// out.
void ChooseLargest(const float* scores, int count, int num_chosen, bool* is_chosen, const bool* is_allowed) {
  for (int n = 0; n < num_chosen; ++n) {
    int best = -1;
    for (int i = 0; i < count; ++i) {
      if (is_chosen[i] || !is_allowed[i]) continue;
      if (best < 0 || scores[i] > scores[best]) best = i;
    }
    is_chosen[best] = true;
  }
}

// The sum of the two largest scores of a group, or the largest alone.
float GroupScore(const float* scores, int count, bool use_two) {
  float first = kMinusInfinity;
  float second = kMinusInfinity;
  for (int i = 0; i < count; ++i) {
    if (scores[i] > first) {
      second = first;
      first = scores[i];
    } else if (scores[i] > second) {
      second = scores[i];
    }
  }
  return use_two && count > 1 ? first + second : first;
}

void RouteRow(const MoeRouterArgs& args, int64_t row) {
  const int num_experts = static_cast<int>(args.logits.shape[1]);
  const int top_k = static_cast<int>(args.expert_ids.shape[1]);
  const int group_size = num_experts / args.n_group;
  const bool has_bias = !args.bias.is_null();
  const float* logits = args.logits.Row(row);

  float scores[kExpertsMax];  // unbiased
  float biased[kExpertsMax];
  for (int e = 0; e < num_experts; ++e) {
    scores[e] = 1.0f / (1.0f + Exp(-logits[e]));
    const float score = has_bias ? scores[e] + args.bias.data[e] : scores[e];
    biased[e] = score == score ? score : kMinusInfinity;
  }

  bool is_allowed[kExpertsMax];
  std::fill_n(is_allowed, num_experts, true);
  if (args.n_group > 1) {
    float group_scores[kExpertsMax];
    for (int g = 0; g < args.n_group; ++g) {
      group_scores[g] = GroupScore(biased + g * group_size, group_size, has_bias);
    }
    bool is_kept[kExpertsMax] = {};
    ChooseLargest(group_scores, args.n_group, args.topk_group, is_kept, is_allowed);
    for (int e = 0; e < num_experts; ++e) is_allowed[e] = is_kept[e / group_size];
  }
  bool is_chosen[kExpertsMax] = {};
  ChooseLargest(biased, num_experts, top_k, is_chosen, is_allowed);

  int32_t* ids = args.expert_ids.Row(row);
  float* weights = args.weights.Row(row);
  float sum = 0;
  for (int e = 0, j = 0; e < num_experts; ++e) {
    if (!is_chosen[e]) continue;
    ids[j] = e;
    weights[j] = scores[e];
    sum += scores[e];
    ++j;
  }
  for (int j = 0; j < top_k; ++j) {
    const float weight = args.norm_topk_prob ? weights[j] / (sum + 1e-20f) : weights[j];
    weights[j] = weight * args.routed_scaling_factor;
  }
}

}  // namespace

absl::Status MoeRouter(const MoeRouterArgs& args) {
  const auto [num_rows, num_experts] = args.logits.shape;
  const int64_t top_k = args.expert_ids.shape[1];
  OpBorder border("MoeRouter");
  border.Require(num_experts >= 1 && num_experts <= kExpertsMax, "num_experts", num_experts, "in [1, 1024]")
      .Require(args.n_group >= 1 && num_experts % args.n_group == 0, "n_group", args.n_group,
               "a divisor of num_experts")
      .Require(args.topk_group >= 1 && args.topk_group <= args.n_group, "topk_group", args.topk_group,
               "in [1, n_group]");
  RETURN_IF_ERROR(border.status());
  const int64_t num_candidates = args.topk_group * (num_experts / args.n_group);
  border.Require(top_k >= 1 && top_k <= num_candidates, "top_k", top_k, "in [1, experts of topk_group groups]")
      .Shape("logits", args.logits, {num_rows, num_experts})
      .Shape("expert_ids", args.expert_ids, {num_rows, top_k})
      .Shape("weights", args.weights, {num_rows, top_k});
  if (!args.bias.is_null()) border.Shape("bias", args.bias, {num_experts});
  RETURN_IF_ERROR(border.status());
  for (int64_t row = 0; row < num_rows; ++row) RouteRow(args, row);
  return absl::OkStatus();
}

}  // namespace tandem::kernels

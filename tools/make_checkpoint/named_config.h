// The test configurations of the specification's section 11: the architecture of DeepSeek-V3.2 with every feature and
// real KV records, small enough for a CPU.
//
// A random model is chaotic: FP32's own error at the first layer, 1e-7, decides at the last which experts and positions
// are chosen, so that no two correct implementations agree on the whole (tools/reference/README.md, Chaos). That makes
// v32-tiny and v32-micro good at noticing one wrong KV byte and useless for comparing whole models; v32-tiny-calm is
// v32-tiny with layers that add little, as a trained model's do, and is compared end to end.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem::make_checkpoint {

// What differs from DeepSeek-V3.2's own config.json, by its keys.
struct NamedConfig {
  std::string_view name;
  int vocab_size, hidden_size, num_hidden_layers, first_k_dense_replace;
  int intermediate_size, moe_intermediate_size, n_routed_experts, num_experts_per_tok, n_group, topk_group;
  int num_attention_heads, q_lora_rank, index_n_heads, index_topk;
  // Of o_proj and down_proj, that is, of what each layer adds to the residual stream.
  double branch_gain = 1.0;
  // The same in both, as in the real model.
  static constexpr int kKvLoraRank = 512, kQkNopeHeadDim = 128, kQkRopeHeadDim = 64, kVHeadDim = 128;
  static constexpr int kIndexHeadDim = 128, kSharedExperts = 1;
};

// INVALID_ARGUMENT where there is no such name, listing the names.
absl::StatusOr<NamedConfig> FindNamedConfig(const std::string& name);

// The checkpoint's config.json and generation_config.json.
std::string BuildConfigJson(const NamedConfig& config);
std::string BuildGenerationConfigJson();

}  // namespace tandem::make_checkpoint

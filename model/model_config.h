// What a checkpoint folder says about its model: config.json, generation_config.json, hf_quant_config.json.
//
// Unknown keys are ignored; known ones are validated against what the kernels and the KV records can hold, so that
// nothing behind this border checks a dimension again. Field names are the keys of config.json.
// Tested by model_config_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/ops.h"

namespace tandem::model {

// What a request gets where it names nothing itself.
struct SamplingDefaults {
  float temperature = 1.0f;
  float top_p = 1.0f;
  int top_k = 0;  // 0 = off
  bool operator==(const SamplingDefaults&) const = default;
};

struct ModelConfig {
  int vocab_size = 0;
  int hidden_size = 0;
  int num_hidden_layers = 0;
  int num_nextn_predict_layers = 0;  // 0 or 1: the MTP layer, whose id is num_hidden_layers
  int first_k_dense_replace = 0;     // layers before it are dense, from it on MoE
  int intermediate_size = 0;
  int moe_intermediate_size = 0;
  int n_routed_experts = 0;
  int n_shared_experts = 0;
  int num_experts_per_tok = 0;
  int n_group = 1;
  int topk_group = 1;
  bool norm_topk_prob = true;
  float routed_scaling_factor = 1.0f;
  int num_attention_heads = 0;
  int q_lora_rank = 0;
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0;
  int qk_rope_head_dim = 0;
  int v_head_dim = 0;
  int index_n_heads = 0;
  int index_head_dim = 0;
  int index_topk = 0;
  bool indexer_rope_interleave = false;
  float rms_norm_eps = 1e-6f;
  int64_t max_position_embeddings = 0;
  kernels::YarnParams yarn;
  double mscale_all_dim = 0;
  // Weights named in quantization_config are FP8 with 128 x 128 block scales; without it every linear is BF16.
  bool has_fp8_weights = false;
  kernels::ScaleFormat scale_format = kernels::ScaleFormat::kUe8m0;  // of activations and of the KV records
  int bos_token_id = 0;
  std::vector<int> eos_token_ids;  // generation_config.json's where it names any
  SamplingDefaults sampling;

  int qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  bool IsMoeLayer(int layer) const { return layer >= first_k_dense_replace; }  // the MTP layer is one, too
  bool has_mtp() const { return num_nextn_predict_layers > 0; }
  // Layers that have weights and KV pages: the main model's, then the MTP layer where there is one.
  int num_layers() const { return num_hidden_layers + num_nextn_predict_layers; }
  // One line per field that changes a KV byte or a logit, in a fixed order: part of the model hash.
  std::string CanonicalText() const;
};

// Reads the folder's files. NOT_FOUND where config.json is absent; UNIMPLEMENTED for a checkpoint whose format is
// recognised but not served (4-bit ones, by name); INVALID_ARGUMENT where it is no DeepSeek-V3.2 or a field does not
// fit, naming file, field, value and limit.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& folder);

// The parts of LoadModelConfig, for one text each; `what` names the file in errors.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json, absl::string_view what);
absl::Status ApplyGenerationConfig(absl::string_view json, absl::string_view what, ModelConfig& config);
// OK where hf_quant_config.json names no format that we refuse.
absl::Status CheckHfQuantConfig(absl::string_view json, absl::string_view what);

}  // namespace tandem::model

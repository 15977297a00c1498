#include "tools/make_checkpoint/named_config.h"

#include "absl/strings/str_cat.h"
#include "boost/json/serialize.hpp"
#include "boost/json/value.hpp"

namespace tandem::make_checkpoint {
namespace {

constexpr NamedConfig Calm(NamedConfig config, std::string_view name) {
  config.name = name;
  config.branch_gain = 0x1p-5;
  return config;
}

constexpr NamedConfig kTiny = {.name = "v32-tiny",
                               .vocab_size = 4096,
                               .hidden_size = 256,
                               .num_hidden_layers = 4,
                               .first_k_dense_replace = 1,
                               .intermediate_size = 512,
                               .moe_intermediate_size = 128,
                               .n_routed_experts = 16,
                               .num_experts_per_tok = 4,
                               .n_group = 4,
                               .topk_group = 2,
                               .num_attention_heads = 8,
                               .q_lora_rank = 128,
                               .index_n_heads = 8,
                               .index_topk = 64};

constexpr NamedConfig kConfigs[] = {
    kTiny,
    Calm(kTiny, "v32-tiny-calm"),
    {.name = "v32-micro",
     .vocab_size = 1024,
     .hidden_size = 128,
     .num_hidden_layers = 2,
     .first_k_dense_replace = 1,
     .intermediate_size = 256,
     .moe_intermediate_size = 128,
     .n_routed_experts = 8,
     .num_experts_per_tok = 2,
     .n_group = 4,
     .topk_group = 2,
     .num_attention_heads = 4,
     .q_lora_rank = 128,
     .index_n_heads = 4,
     .index_topk = 16},
};

}  // namespace

absl::StatusOr<NamedConfig> FindNamedConfig(const std::string& name) {
  std::string names;
  for (const NamedConfig& config : kConfigs) {
    if (config.name == name) return config;
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(config.name));
  }
  return absl::InvalidArgumentError(absl::StrCat("config '", name, "' is not known, there are ", names));
}

std::string BuildConfigJson(const NamedConfig& config) {
  const boost::json::object root = {{"architectures", boost::json::array{"DeepseekV32ForCausalLM"}},
                                    {"attention_bias", false},
                                    {"attention_dropout", 0.0},
                                    {"bos_token_id", 0},
                                    {"eos_token_id", 1},
                                    {"ep_size", 1},
                                    {"first_k_dense_replace", config.first_k_dense_replace},
                                    {"hidden_act", "silu"},
                                    {"hidden_size", config.hidden_size},
                                    {"index_head_dim", NamedConfig::kIndexHeadDim},
                                    {"index_n_heads", config.index_n_heads},
                                    {"index_topk", config.index_topk},
                                    {"initializer_range", 0.02},
                                    {"intermediate_size", config.intermediate_size},
                                    {"kv_lora_rank", NamedConfig::kKvLoraRank},
                                    {"max_position_embeddings", 163840},
                                    {"model_type", "deepseek_v32"},
                                    {"moe_intermediate_size", config.moe_intermediate_size},
                                    {"moe_layer_freq", 1},
                                    {"n_group", config.n_group},
                                    {"n_routed_experts", config.n_routed_experts},
                                    {"n_shared_experts", NamedConfig::kSharedExperts},
                                    {"norm_topk_prob", true},
                                    {"num_attention_heads", config.num_attention_heads},
                                    {"num_experts_per_tok", config.num_experts_per_tok},
                                    {"num_hidden_layers", config.num_hidden_layers},
                                    {"num_key_value_heads", config.num_attention_heads},
                                    {"num_nextn_predict_layers", 1},
                                    {"q_lora_rank", config.q_lora_rank},
                                    {"qk_nope_head_dim", NamedConfig::kQkNopeHeadDim},
                                    {"qk_rope_head_dim", NamedConfig::kQkRopeHeadDim},
                                    {"quantization_config",
                                     {{"activation_scheme", "dynamic"},
                                      {"fmt", "e4m3"},
                                      {"quant_method", "fp8"},
                                      {"scale_fmt", "ue8m0"},
                                      {"weight_block_size", boost::json::array{128, 128}}}},
                                    {"rms_norm_eps", 1e-06},
                                    {"rope_scaling",
                                     {{"beta_fast", 32},
                                      {"beta_slow", 1},
                                      {"factor", 40},
                                      {"mscale", 1.0},
                                      {"mscale_all_dim", 1.0},
                                      {"original_max_position_embeddings", 4096},
                                      {"type", "yarn"}}},
                                    {"rope_theta", 10000},
                                    {"routed_scaling_factor", 2.5},
                                    {"scoring_func", "sigmoid"},
                                    {"tie_word_embeddings", false},
                                    {"topk_group", config.topk_group},
                                    {"topk_method", "noaux_tc"},
                                    {"torch_dtype", "bfloat16"},
                                    {"transformers_version", "4.44.2"},
                                    {"use_cache", true},
                                    {"v_head_dim", NamedConfig::kVHeadDim},
                                    {"vocab_size", config.vocab_size}};
  return boost::json::serialize(root);
}

std::string BuildGenerationConfigJson() {
  return boost::json::serialize(boost::json::object{
      {"bos_token_id", 0}, {"do_sample", true}, {"eos_token_id", 1}, {"temperature", 1.0}, {"top_p", 0.95}});
}

}  // namespace tandem::make_checkpoint

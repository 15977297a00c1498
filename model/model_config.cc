#include "model/model_config.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "kvcache/kv_layout.h"
#include "model/json.h"
#include "model/json_fields.h"

namespace tandem::model {
namespace {

constexpr size_t kConfigBytesMax = 16 << 20;

absl::Status RefuseFormat(absl::string_view what, absl::string_view format) {
  return absl::UnimplementedError(
      absl::StrCat(what, ": checkpoint format ", format, " is not served; FP8 (block 128 x 128) and BF16 are"));
}

// A string member of an object, or "" where there is none.
std::string StringAt(const boost::json::object& object, const char* key) {
  const boost::json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

// compressed-tensors and quark may say the format per group of layers only: the first num_bits / dtype found below.
bool MentionsFourBits(const boost::json::value& value) {
  if (const boost::json::array* array = value.if_array()) {
    return std::any_of(array->begin(), array->end(), MentionsFourBits);
  }
  const boost::json::object* object = value.if_object();
  if (object == nullptr) return false;
  for (const auto& [key, member] : *object) {
    if (key == "num_bits" && member.is_int64() && member.get_int64() == 4) return true;
    if (key == "dtype" && member.is_string() && member.get_string().starts_with("fp4")) return true;
    if (MentionsFourBits(member)) return true;
  }
  return false;
}

absl::Status ParseQuantization(const boost::json::value& value, absl::string_view what, ModelConfig& config) {
  if (!value.is_object()) return absl::InvalidArgumentError(absl::StrCat(what, " is not an object"));
  const boost::json::object& object = value.get_object();
  const std::string method = StringAt(object, "quant_method");
  if (method == "modelopt" || method == "modelopt_fp4") {
    std::string algo = StringAt(object, "quant_algo");
    if (algo.empty()) {
      const boost::json::value* inner = object.if_contains("quantization");
      if (inner != nullptr && inner->is_object()) algo = StringAt(inner->get_object(), "quant_algo");
    }
    return RefuseFormat(what, absl::StrCat("ModelOpt ", algo.empty() ? "4-bit" : algo));
  }
  if (method == "compressed-tensors") {
    const std::string format = StringAt(object, "format");
    return RefuseFormat(what, absl::StrCat("compressed-tensors ", format.empty() ? "of no named format" : format));
  }
  if (method == "quark") {
    return RefuseFormat(what, MentionsFourBits(value) ? "quark MXFP4" : "quark");
  }
  if (method != "fp8") return RefuseFormat(what, absl::StrCat("quant_method '", method, "'"));

  JsonFields fields(object, what);
  fields.Expect("fmt", "e4m3");
  fields.Expect("activation_scheme", "dynamic");
  const boost::json::value* block = fields.Find("weight_block_size");
  const boost::json::array expected = {kernels::kQuantGroup, kernels::kQuantGroup};
  if (block == nullptr || *block != boost::json::value(expected)) {
    fields.Fault("weight_block_size", "is not [128, 128]");
  }
  std::string scale_fmt;
  fields.String("scale_fmt", &scale_fmt, false);
  if (!scale_fmt.empty() && scale_fmt != "ue8m0") {
    fields.Fault("scale_fmt", absl::StrCat("is '", scale_fmt, "', allowed 'ue8m0' or none"));
  }
  config.has_fp8_weights = true;
  config.scale_format = scale_fmt.empty() ? kernels::ScaleFormat::kFloat32 : kernels::ScaleFormat::kUe8m0;
  return fields.status();
}

// The three spellings: rope_scaling.type, rope_scaling.rope_type, and rope_parameters, which holds rope_theta, too.
absl::Status ParseRope(JsonFields& top, absl::string_view what, ModelConfig& config) {
  kernels::YarnParams& yarn = config.yarn;
  yarn = kernels::YarnParams{.factor = 1, .original_max_position = config.max_position_embeddings};
  top.Number("rope_theta", &yarn.rope_theta, 1.0, 1e12, false);
  const char* key = top.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const boost::json::value* value = top.Find(key);
  if (value == nullptr) return top.status();
  if (!value->is_object()) return absl::InvalidArgumentError(absl::StrCat(what, ": ", key, " is not an object"));
  JsonFields fields(value->get_object(), absl::StrCat(what, ": ", key));
  fields.Number("rope_theta", &yarn.rope_theta, 1.0, 1e12, false);
  std::string type;
  fields.String(fields.Has("rope_type") ? "rope_type" : "type", &type);
  if (type == "default") return fields.status();
  if (type != "yarn" && fields.status().ok()) {
    fields.Fault("type", absl::StrCat("is '", type, "', only 'yarn' and 'default' are served"));
  }
  fields.Number("factor", &yarn.factor, 1.0, 1e6);
  fields.Integer("original_max_position_embeddings", &yarn.original_max_position, 1, int64_t{1} << 31);
  fields.Number("beta_fast", &yarn.beta_fast, 1e-6, 1e6, false);
  fields.Number("beta_slow", &yarn.beta_slow, 1e-6, 1e6, false);
  double mscale = 1;
  fields.Number("mscale", &mscale, 0.0, 1e6, false);
  fields.Number("mscale_all_dim", &config.mscale_all_dim, 0.0, 1e6, false);
  if (mscale != config.mscale_all_dim) {
    // Their quotient would scale cosines and sines.
    fields.Fault("mscale", absl::StrCat("is ", mscale, " and mscale_all_dim ", config.mscale_all_dim,
                                        ", only equal values are served"));
  }
  return fields.status();
}

void ReadDimensions(JsonFields& fields, ModelConfig& c) {
  constexpr int kWidthMax = 1 << 17;
  fields.Integer("vocab_size", &c.vocab_size, 1, 1 << 22);
  fields.Integer("hidden_size", &c.hidden_size, 128, kWidthMax);
  fields.Integer("num_hidden_layers", &c.num_hidden_layers, 1, 1024);
  fields.Integer("num_nextn_predict_layers", &c.num_nextn_predict_layers, 0, 1, false);
  fields.Integer("first_k_dense_replace", &c.first_k_dense_replace, 0, c.num_hidden_layers);
  int moe_layer_freq = 1;
  fields.Integer("moe_layer_freq", &moe_layer_freq, 1, 1, false);
  fields.Integer("intermediate_size", &c.intermediate_size, 128, kWidthMax);
  fields.Integer("moe_intermediate_size", &c.moe_intermediate_size, 128, kWidthMax);
  fields.Integer("n_routed_experts", &c.n_routed_experts, 1, 4096);
  fields.Integer("n_shared_experts", &c.n_shared_experts, 0, 64);
  fields.Integer("num_experts_per_tok", &c.num_experts_per_tok, 1, 64);
  fields.Integer("n_group", &c.n_group, 1, 256, false);
  fields.Integer("topk_group", &c.topk_group, 1, c.n_group, false);
  fields.Bool("norm_topk_prob", &c.norm_topk_prob, false);
  fields.Number("routed_scaling_factor", &c.routed_scaling_factor, 1e-6, 1e6, false);
  fields.Integer("num_attention_heads", &c.num_attention_heads, 1, 1024);
  fields.Integer("q_lora_rank", &c.q_lora_rank, 128, kWidthMax);
  fields.Integer("kv_lora_rank", &c.kv_lora_rank, kvcache::kLatentDim, kvcache::kLatentDim);
  fields.Integer("qk_nope_head_dim", &c.qk_nope_head_dim, 16, 1024);
  fields.Integer("qk_rope_head_dim", &c.qk_rope_head_dim, kvcache::kRopeDim, kvcache::kRopeDim);
  fields.Integer("v_head_dim", &c.v_head_dim, 16, 1024);
  fields.Integer("index_n_heads", &c.index_n_heads, 1, 1024);
  fields.Integer("index_head_dim", &c.index_head_dim, kvcache::kIndexDim, kvcache::kIndexDim);
  fields.Integer("index_topk", &c.index_topk, 1, 1 << 20);
  fields.Bool("indexer_rope_interleave", &c.indexer_rope_interleave, false);
  fields.Number("rms_norm_eps", &c.rms_norm_eps, 1e-12, 1e-2);
  fields.Integer("max_position_embeddings", &c.max_position_embeddings, 1, int64_t{1} << 30);
}

// What relates fields to each other and to 128-channel quantisation groups.
void CheckRelations(JsonFields& fields, const ModelConfig& c) {
  auto multiple = [&](absl::string_view key, int64_t value, int64_t unit) {
    if (value % unit != 0) fields.Fault(key, absl::StrCat("is ", value, ", must be a multiple of ", unit));
  };
  multiple("hidden_size", c.hidden_size, kernels::kQuantGroup);
  multiple("intermediate_size", c.intermediate_size, kernels::kQuantGroup);
  multiple("moe_intermediate_size", c.moe_intermediate_size, kernels::kQuantGroup);
  multiple("q_lora_rank", c.q_lora_rank, kernels::kQuantGroup);
  multiple("qk_nope_head_dim", c.qk_nope_head_dim, 16);
  multiple("v_head_dim", c.v_head_dim, 16);
  multiple("num_attention_heads * v_head_dim", int64_t{c.num_attention_heads} * c.v_head_dim, kernels::kQuantGroup);
  multiple("n_routed_experts", c.n_routed_experts, c.n_group);
  const int candidates = c.n_routed_experts / c.n_group * c.topk_group;
  if (c.num_experts_per_tok > candidates) {
    fields.Fault("num_experts_per_tok", absl::StrCat("is ", c.num_experts_per_tok, ", limit ", candidates,
                                                     " (the experts of topk_group groups)"));
  }
}

// An id or a list of ids, each in the vocabulary.
void ReadTokenIds(JsonFields& fields, absl::string_view key, int vocab_size, std::vector<int>* out) {
  const boost::json::value* value = fields.Find(key);
  if (value == nullptr) return;
  const boost::json::array ids = value->is_array() ? value->get_array() : boost::json::array{*value};
  std::vector<int> parsed;
  for (const boost::json::value& id : ids) {
    const int64_t* number = id.if_int64();
    if (number == nullptr || *number < 0 || *number >= vocab_size) {
      return fields.Fault(key, absl::StrCat("is not an id below vocab_size ", vocab_size, ", or a list of such"));
    }
    parsed.push_back(static_cast<int>(*number));
  }
  *out = std::move(parsed);
}

absl::Status CheckArchitecture(const boost::json::object& object, absl::string_view what) {
  const std::string model_type = StringAt(object, "model_type");
  std::vector<std::string> architectures;
  const boost::json::value* list = object.if_contains("architectures");
  if (list != nullptr && list->is_array()) {
    for (const boost::json::value& name : list->get_array()) {
      if (name.is_string()) architectures.emplace_back(name.get_string());
    }
  }
  const bool is_named =
      std::find(architectures.begin(), architectures.end(), "DeepseekV32ForCausalLM") != architectures.end();
  if (model_type == "deepseek_v32" || (model_type.empty() && is_named)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": not a DeepSeek-V3.2 model: model_type is '", model_type,
                                                 "', architectures [", absl::StrJoin(architectures, ", "),
                                                 "], only deepseek_v32 is served"));
}

absl::StatusOr<boost::json::value> ParseObject(absl::string_view json, absl::string_view what) {
  ASSIGN_OR_RETURN(boost::json::value value, ParseJson(json, what));
  if (!value.is_object()) return absl::InvalidArgumentError(absl::StrCat(what, ": is not a JSON object"));
  return value;
}

}  // namespace

std::string ModelConfig::CanonicalText() const {
  std::string text;
  auto line = [&](absl::string_view name, auto value) { absl::StrAppend(&text, name, "=", value, "\n"); };
  // 17 digits give a double back exactly.
  auto real = [&](absl::string_view name, double value) { line(name, absl::StrFormat("%.17g", value)); };
  line("vocab_size", vocab_size);
  line("hidden_size", hidden_size);
  line("num_hidden_layers", num_hidden_layers);
  line("num_nextn_predict_layers", num_nextn_predict_layers);
  line("first_k_dense_replace", first_k_dense_replace);
  line("intermediate_size", intermediate_size);
  line("moe_intermediate_size", moe_intermediate_size);
  line("n_routed_experts", n_routed_experts);
  line("n_shared_experts", n_shared_experts);
  line("num_experts_per_tok", num_experts_per_tok);
  line("n_group", n_group);
  line("topk_group", topk_group);
  line("norm_topk_prob", static_cast<int>(norm_topk_prob));
  real("routed_scaling_factor", routed_scaling_factor);
  line("num_attention_heads", num_attention_heads);
  line("q_lora_rank", q_lora_rank);
  line("kv_lora_rank", kv_lora_rank);
  line("qk_nope_head_dim", qk_nope_head_dim);
  line("qk_rope_head_dim", qk_rope_head_dim);
  line("v_head_dim", v_head_dim);
  line("index_n_heads", index_n_heads);
  line("index_head_dim", index_head_dim);
  line("index_topk", index_topk);
  line("indexer_rope_interleave", static_cast<int>(indexer_rope_interleave));
  real("rms_norm_eps", rms_norm_eps);
  real("rope_theta", yarn.rope_theta);
  real("rope_factor", yarn.factor);
  line("rope_original_max_position", yarn.original_max_position);
  real("rope_beta_fast", yarn.beta_fast);
  real("rope_beta_slow", yarn.beta_slow);
  real("mscale_all_dim", mscale_all_dim);
  line("has_fp8_weights", static_cast<int>(has_fp8_weights));
  line("scale_format", scale_format == kernels::ScaleFormat::kUe8m0 ? "ue8m0" : "float32");
  return text;
}

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json, absl::string_view what) {
  ASSIGN_OR_RETURN(boost::json::value value, ParseObject(json, what));
  const boost::json::object& object = value.get_object();
  RETURN_IF_ERROR(CheckArchitecture(object, what));
  ModelConfig config;
  JsonFields fields(object, what);
  if (const boost::json::value* quantization = fields.Find("quantization_config")) {
    RETURN_IF_ERROR(ParseQuantization(*quantization, absl::StrCat(what, ": quantization_config"), config));
  }
  ReadDimensions(fields, config);
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(ParseRope(fields, what, config));
  fields.Expect("topk_method", "noaux_tc");
  fields.Expect("scoring_func", "sigmoid");
  fields.Expect("hidden_act", "silu");
  fields.ExpectFlag("tie_word_embeddings", false);
  fields.ExpectFlag("attention_bias", false);
  CheckRelations(fields, config);
  fields.Integer("bos_token_id", &config.bos_token_id, 0, config.vocab_size - 1, false);
  ReadTokenIds(fields, "eos_token_id", config.vocab_size, &config.eos_token_ids);
  RETURN_IF_ERROR(fields.status());
  return config;
}

absl::Status ApplyGenerationConfig(absl::string_view json, absl::string_view what, ModelConfig& config) {
  ASSIGN_OR_RETURN(boost::json::value value, ParseObject(json, what));
  JsonFields fields(value.get_object(), what);
  fields.Number("temperature", &config.sampling.temperature, 0.0, 100.0, false);
  fields.Number("top_p", &config.sampling.top_p, 1e-9, 1.0, false);
  fields.Integer("top_k", &config.sampling.top_k, 0, 1 << 22, false);
  bool do_sample = true;
  fields.Bool("do_sample", &do_sample, false);
  if (!do_sample) config.sampling.temperature = 0;
  ReadTokenIds(fields, "eos_token_id", config.vocab_size, &config.eos_token_ids);
  return fields.status();
}

absl::Status CheckHfQuantConfig(absl::string_view json, absl::string_view what) {
  ASSIGN_OR_RETURN(boost::json::value value, ParseObject(json, what));
  const boost::json::value* quantization = value.get_object().if_contains("quantization");
  if (quantization == nullptr || !quantization->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": quantization is missing or not an object"));
  }
  const std::string algo = StringAt(quantization->get_object(), "quant_algo");
  if (algo.empty()) return absl::OkStatus();
  return RefuseFormat(what, absl::StrCat("ModelOpt ", algo));
}

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& folder) {
  const std::string quant_path = absl::StrCat(folder, "/hf_quant_config.json");
  absl::StatusOr<std::string> quant = ReadWholeFile(quant_path, kConfigBytesMax);
  if (quant.ok()) {
    RETURN_IF_ERROR(CheckHfQuantConfig(*quant, quant_path));
  } else if (!absl::IsNotFound(quant.status())) {
    return quant.status();
  }
  const std::string config_path = absl::StrCat(folder, "/config.json");
  ASSIGN_OR_RETURN(std::string text, ReadWholeFile(config_path, kConfigBytesMax));
  ASSIGN_OR_RETURN(ModelConfig config, ParseModelConfig(text, config_path));
  const std::string generation_path = absl::StrCat(folder, "/generation_config.json");
  absl::StatusOr<std::string> generation = ReadWholeFile(generation_path, kConfigBytesMax);
  if (generation.ok()) {
    RETURN_IF_ERROR(ApplyGenerationConfig(*generation, generation_path, config));
  } else if (!absl::IsNotFound(generation.status())) {
    return generation.status();
  }
  if (config.eos_token_ids.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(config_path, ": eos_token_id is missing"));
  }
  return config;
}

}  // namespace tandem::model

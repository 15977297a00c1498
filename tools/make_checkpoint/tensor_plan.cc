#include "tools/make_checkpoint/tensor_plan.h"

#include "absl/strings/str_cat.h"

namespace tandem::make_checkpoint {
namespace {

constexpr char kEmbed[] = "model.embed_tokens.weight";
constexpr char kHead[] = "lm_head.weight";
class Planner final {
 public:
  explicit Planner(const NamedConfig& config) : c_(config) {}

  std::vector<PlannedTensor> Plan() && {
    Add(kEmbed, Init::kBf16Unit, {c_.vocab_size, c_.hidden_size});
    for (int layer = 0; layer < c_.num_hidden_layers; ++layer) AddLayer(layer, layer >= c_.first_k_dense_replace);
    Add("model.norm.weight", Init::kBf16Norm, {c_.hidden_size});
    Add(kHead, Init::kBf16Normal, {c_.vocab_size, c_.hidden_size}, 4.0);
    AddMtpLayer(c_.num_hidden_layers);
    return std::move(tensors_);
  }

 private:
  void Add(std::string name, Init init, std::vector<int64_t> shape, double gain = 1.0, std::string copy_of = "") {
    tensors_.push_back({std::move(name), init, std::move(shape), gain, std::move(copy_of)});
  }
  void AddLinear(const std::string& name, int64_t out_dim, int64_t in_dim, double gain = 1.0) {
    Add(absl::StrCat(name, ".weight"), Init::kFp8Linear, {out_dim, in_dim}, gain);
  }
  void AddNorm(const std::string& name, int64_t dim) { Add(absl::StrCat(name, ".weight"), Init::kBf16Norm, {dim}); }
  void AddMlp(const std::string& name, int64_t width) {
    AddLinear(absl::StrCat(name, ".gate_proj"), width, c_.hidden_size);
    AddLinear(absl::StrCat(name, ".up_proj"), width, c_.hidden_size);
    AddLinear(absl::StrCat(name, ".down_proj"), c_.hidden_size, width, c_.branch_gain);
  }

  void AddAttention(const std::string& attn) {
    const int64_t heads = c_.num_attention_heads;
    AddLinear(attn + "q_a_proj", c_.q_lora_rank, c_.hidden_size);
    AddNorm(attn + "q_a_layernorm", c_.q_lora_rank);
    AddLinear(attn + "q_b_proj", heads * (c_.kQkNopeHeadDim + c_.kQkRopeHeadDim), c_.q_lora_rank);
    AddLinear(attn + "kv_a_proj_with_mqa", c_.kKvLoraRank + c_.kQkRopeHeadDim, c_.hidden_size);
    AddNorm(attn + "kv_a_layernorm", c_.kKvLoraRank);
    AddLinear(attn + "kv_b_proj", heads * (c_.kQkNopeHeadDim + c_.kVHeadDim), c_.kKvLoraRank);
    AddLinear(attn + "o_proj", c_.hidden_size, heads * c_.kVHeadDim, c_.branch_gain);
    AddLinear(attn + "indexer.wq_b", c_.index_n_heads * c_.kIndexHeadDim, c_.q_lora_rank);
    AddLinear(attn + "indexer.wk", c_.kIndexHeadDim, c_.hidden_size);
    Add(attn + "indexer.k_norm.weight", Init::kF32Norm, {c_.kIndexHeadDim});
    Add(attn + "indexer.k_norm.bias", Init::kF32Bias, {c_.kIndexHeadDim});
    Add(attn + "indexer.weights_proj.weight", Init::kBf16Normal, {c_.index_n_heads, c_.hidden_size});
  }

  void AddLayer(int layer, bool is_moe) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    AddNorm(prefix + "input_layernorm", c_.hidden_size);
    AddAttention(prefix + "self_attn.");
    AddNorm(prefix + "post_attention_layernorm", c_.hidden_size);
    if (!is_moe) return AddMlp(prefix + "mlp", c_.intermediate_size);
    Add(prefix + "mlp.gate.weight", Init::kBf16Normal, {c_.n_routed_experts, c_.hidden_size}, 2.0);
    Add(prefix + "mlp.gate.e_score_correction_bias", Init::kF32Uniform, {c_.n_routed_experts});
    for (int expert = 0; expert < c_.n_routed_experts; ++expert) {
      AddMlp(absl::StrCat(prefix, "mlp.experts.", expert), c_.moe_intermediate_size);
    }
    AddMlp(prefix + "mlp.shared_experts", c_.kSharedExperts * c_.moe_intermediate_size);
  }

  void AddMtpLayer(int layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    Add(prefix + "embed_tokens.weight", Init::kBf16Unit, {c_.vocab_size, c_.hidden_size}, 1.0, kEmbed);
    AddNorm(prefix + "enorm", c_.hidden_size);
    AddNorm(prefix + "hnorm", c_.hidden_size);
    Add(prefix + "eh_proj.weight", Init::kBf16Normal, {c_.hidden_size, 2 * c_.hidden_size});
    AddLayer(layer, /*is_moe=*/true);
    AddNorm(prefix + "shared_head.norm", c_.hidden_size);
    Add(prefix + "shared_head.head.weight", Init::kBf16Normal, {c_.vocab_size, c_.hidden_size}, 4.0, kHead);
  }

  const NamedConfig& c_;
  std::vector<PlannedTensor> tensors_;
};

}  // namespace

std::vector<PlannedTensor> PlanTensors(const NamedConfig& config) { return Planner(config).Plan(); }

}  // namespace tandem::make_checkpoint

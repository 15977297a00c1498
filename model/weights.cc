#include "model/weights.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvcache/kv_layout.h"

namespace tandem::model {
namespace {

using kernels::Bf16;
using kernels::E4m3;
using kernels::Matrix;
using kernels::Vector;
using kvcache::kIndexDim;
using kvcache::kLatentDim;
using kvcache::kRopeDim;

class Loader final {
 public:
  Loader(std::shared_ptr<const Checkpoint> checkpoint, ModelWeights& out)
      : checkpoint_(*checkpoint), c_(checkpoint->config()), out_(out) {
    out_.checkpoint = std::move(checkpoint);
  }

  absl::Status LoadAll(bool with_mtp) {
    ASSIGN_OR_RETURN(out_.embed_tokens, Bf16Matrix("model.embed_tokens.weight", c_.vocab_size, c_.hidden_size));
    ASSIGN_OR_RETURN(out_.lm_head, Bf16Matrix("lm_head.weight", c_.vocab_size, c_.hidden_size));
    ASSIGN_OR_RETURN(out_.norm, Norm("model.norm", c_.hidden_size));
    out_.layers.resize(c_.num_hidden_layers);
    for (int layer = 0; layer < c_.num_hidden_layers; ++layer) {
      RETURN_IF_ERROR(LoadLayer(layer, out_.layers[layer]));
    }
    if (with_mtp) return LoadMtp(out_.mtp.emplace());
    return absl::OkStatus();
  }

 private:
  // The bytes of a tensor as Ts: in place where they are aligned, else copied.
  template <typename T>
  const T* Aligned(const Tensor& tensor) {
    const uint8_t* bytes = tensor.bytes.data();
    if (reinterpret_cast<uintptr_t>(bytes) % alignof(T) == 0) return reinterpret_cast<const T*>(bytes);
    out_.copies.emplace_back(tensor.bytes.begin(), tensor.bytes.end());
    return reinterpret_cast<const T*>(out_.copies.back().data());
  }
  template <typename T>
  T* Allocate(int64_t count) {
    out_.copies.emplace_back(count * sizeof(T));
    return reinterpret_cast<T*>(out_.copies.back().data());
  }

  absl::StatusOr<Matrix<const Bf16>> Bf16Matrix(const std::string& name, int64_t rows, int64_t columns) {
    ASSIGN_OR_RETURN(const Tensor* tensor, checkpoint_.Require(name, {DType::kBf16}, {rows, columns}));
    return Matrix<const Bf16>(Aligned<Bf16>(*tensor), {rows, columns});
  }

  absl::StatusOr<Vector<const Bf16>> Norm(const std::string& name, int64_t dim) {
    ASSIGN_OR_RETURN(const Tensor* tensor, checkpoint_.Require(absl::StrCat(name, ".weight"), {DType::kBf16}, {dim}));
    return Vector<const Bf16>(Aligned<Bf16>(*tensor), {dim});
  }

  // FP32 values; some exports store them as BF16.
  absl::StatusOr<Vector<const float>> FloatVector(const std::string& name, int64_t dim) {
    ASSIGN_OR_RETURN(const Tensor* tensor, checkpoint_.Require(name, {DType::kF32, DType::kBf16}, {dim}));
    if (tensor->dtype == DType::kF32) return Vector<const float>(Aligned<float>(*tensor), {dim});
    const Bf16* source = Aligned<Bf16>(*tensor);
    float* values = Allocate<float>(dim);
    for (int64_t i = 0; i < dim; ++i) values[i] = kernels::ToFloat(source[i]);
    return Vector<const float>(values, {dim});
  }

  absl::StatusOr<LinearWeight> Linear(const std::string& name, int64_t out_dim, int64_t in_dim) {
    const std::string weight_name = absl::StrCat(name, ".weight");
    ASSIGN_OR_RETURN(const Tensor* weight,
                     checkpoint_.Require(weight_name, {DType::kF8E4m3, DType::kBf16}, {out_dim, in_dim}));
    LinearWeight linear;
    if (weight->dtype == DType::kBf16) {
      linear.bf16 = Matrix<const Bf16>(Aligned<Bf16>(*weight), {out_dim, in_dim});
      return linear;
    }
    const int64_t row_blocks = (out_dim + kernels::kQuantGroup - 1) / kernels::kQuantGroup;
    const int64_t column_blocks = (in_dim + kernels::kQuantGroup - 1) / kernels::kQuantGroup;
    ASSIGN_OR_RETURN(const Tensor* scale, checkpoint_.Require(absl::StrCat(weight_name, "_scale_inv"), {DType::kF32},
                                                              {row_blocks, column_blocks}));
    linear.fp8.weight = Matrix<const E4m3>(Aligned<E4m3>(*weight), {out_dim, in_dim});
    linear.fp8.scale = Matrix<const float>(Aligned<float>(*scale), {row_blocks, column_blocks});
    return linear;
  }

  absl::Status LoadMlp(const std::string& name, int64_t width, MlpWeights& out) {
    ASSIGN_OR_RETURN(out.gate_proj, Linear(absl::StrCat(name, ".gate_proj"), width, c_.hidden_size));
    ASSIGN_OR_RETURN(out.up_proj, Linear(absl::StrCat(name, ".up_proj"), width, c_.hidden_size));
    ASSIGN_OR_RETURN(out.down_proj, Linear(absl::StrCat(name, ".down_proj"), c_.hidden_size, width));
    return absl::OkStatus();
  }

  absl::Status AddExpert(const std::string& name, const LinearWeight& linear, ExpertWeights& out) {
    const bool is_first = out.fp8.empty() && out.bf16.empty();
    if (!is_first && out.is_fp8() != linear.is_fp8()) {
      return absl::InvalidArgumentError(absl::StrCat(checkpoint_.folder(), ": tensor '", name, ".weight' is ",
                                                     linear.is_fp8() ? "F8_E4M3" : "BF16",
                                                     ", unlike the experts before it in its layer"));
    }
    if (linear.is_fp8()) {
      out.fp8.push_back(linear.fp8);
    } else {
      out.bf16.push_back(linear.bf16);
    }
    return absl::OkStatus();
  }

  absl::Status LoadMoe(const std::string& prefix, MoeWeights& out) {
    ASSIGN_OR_RETURN(out.gate, Bf16Matrix(prefix + "gate.weight", c_.n_routed_experts, c_.hidden_size));
    const std::string bias = prefix + "gate.e_score_correction_bias";
    if (checkpoint_.Find(bias) != nullptr) {
      ASSIGN_OR_RETURN(out.e_score_correction_bias, FloatVector(bias, c_.n_routed_experts));
    }
    for (int expert = 0; expert < c_.n_routed_experts; ++expert) {
      const std::string name = absl::StrCat(prefix, "experts.", expert);
      MlpWeights mlp;
      RETURN_IF_ERROR(LoadMlp(name, c_.moe_intermediate_size, mlp));
      RETURN_IF_ERROR(AddExpert(name + ".gate_proj", mlp.gate_proj, out.gate_proj));
      RETURN_IF_ERROR(AddExpert(name + ".up_proj", mlp.up_proj, out.up_proj));
      RETURN_IF_ERROR(AddExpert(name + ".down_proj", mlp.down_proj, out.down_proj));
    }
    if (c_.n_shared_experts == 0) return absl::OkStatus();
    return LoadMlp(prefix + "shared_experts", int64_t{c_.n_shared_experts} * c_.moe_intermediate_size,
                   out.shared_experts.emplace());
  }

  // kv_b_proj as BF16, weight times scale rounded once: the absorbed form multiplies by it without quantising.
  absl::Status LoadKvB(const std::string& name, AttentionWeights& out) {
    const int64_t head_rows = c_.qk_nope_head_dim + c_.v_head_dim;
    const int64_t rows = c_.num_attention_heads * head_rows;
    ASSIGN_OR_RETURN(const LinearWeight linear, Linear(name, rows, kLatentDim));
    Matrix<const Bf16> kv_b = linear.bf16;
    if (linear.is_fp8()) {
      const Matrix<Bf16> dequantised(Allocate<Bf16>(rows * kLatentDim), {rows, kLatentDim});
      RETURN_IF_ERROR(kernels::DequantizeFp8Weight({.weight = linear.fp8, .out = dequantised}));
      kv_b = dequantised;
    }
    const kernels::Cube<const Bf16>::Dims strides = {head_rows * kLatentDim, kLatentDim, 1};
    out.w_uk = kernels::Cube<const Bf16>(kv_b.data, {c_.num_attention_heads, c_.qk_nope_head_dim, kLatentDim}, strides);
    out.w_uv = kernels::Cube<const Bf16>(kv_b.Row(c_.qk_nope_head_dim),
                                         {c_.num_attention_heads, c_.v_head_dim, kLatentDim}, strides);
    return absl::OkStatus();
  }

  absl::Status LoadIndexer(const std::string& prefix, IndexerWeights& out) {
    ASSIGN_OR_RETURN(out.wq_b, Linear(prefix + "wq_b", int64_t{c_.index_n_heads} * kIndexDim, c_.q_lora_rank));
    ASSIGN_OR_RETURN(out.wk, Linear(prefix + "wk", kIndexDim, c_.hidden_size));
    ASSIGN_OR_RETURN(out.k_norm_weight, FloatVector(prefix + "k_norm.weight", kIndexDim));
    ASSIGN_OR_RETURN(out.k_norm_bias, FloatVector(prefix + "k_norm.bias", kIndexDim));
    ASSIGN_OR_RETURN(out.weights_proj, Bf16Matrix(prefix + "weights_proj.weight", c_.index_n_heads, c_.hidden_size));
    return absl::OkStatus();
  }

  absl::Status LoadAttention(const std::string& prefix, AttentionWeights& out) {
    const int64_t heads = c_.num_attention_heads;
    ASSIGN_OR_RETURN(out.q_a_proj, Linear(prefix + "q_a_proj", c_.q_lora_rank, c_.hidden_size));
    ASSIGN_OR_RETURN(out.q_a_layernorm, Norm(prefix + "q_a_layernorm", c_.q_lora_rank));
    ASSIGN_OR_RETURN(out.q_b_proj, Linear(prefix + "q_b_proj", heads * c_.qk_head_dim(), c_.q_lora_rank));
    ASSIGN_OR_RETURN(out.kv_a_proj_with_mqa,
                     Linear(prefix + "kv_a_proj_with_mqa", kLatentDim + kRopeDim, c_.hidden_size));
    ASSIGN_OR_RETURN(out.kv_a_layernorm, Norm(prefix + "kv_a_layernorm", kLatentDim));
    RETURN_IF_ERROR(LoadKvB(prefix + "kv_b_proj", out));
    ASSIGN_OR_RETURN(out.o_proj, Linear(prefix + "o_proj", c_.hidden_size, heads * c_.v_head_dim));
    return LoadIndexer(prefix + "indexer.", out.indexer);
  }

  absl::Status LoadLayer(int layer, LayerWeights& out) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    ASSIGN_OR_RETURN(out.input_layernorm, Norm(prefix + "input_layernorm", c_.hidden_size));
    ASSIGN_OR_RETURN(out.post_attention_layernorm, Norm(prefix + "post_attention_layernorm", c_.hidden_size));
    RETURN_IF_ERROR(LoadAttention(prefix + "self_attn.", out.self_attn));
    if (c_.IsMoeLayer(layer)) return LoadMoe(prefix + "mlp.", out.moe.emplace());
    return LoadMlp(prefix + "mlp", c_.intermediate_size, out.mlp.emplace());
  }

  absl::StatusOr<Matrix<const Bf16>> OwnOr(const std::string& name, const Matrix<const Bf16>& original) {
    if (checkpoint_.Find(name) == nullptr) return original;
    return Bf16Matrix(name, c_.vocab_size, c_.hidden_size);
  }

  absl::Status LoadMtp(MtpWeights& out) {
    const std::string prefix = absl::StrCat("model.layers.", c_.num_hidden_layers, ".");
    ASSIGN_OR_RETURN(out.embed_tokens, OwnOr(prefix + "embed_tokens.weight", out_.embed_tokens));
    ASSIGN_OR_RETURN(out.head, OwnOr(prefix + "shared_head.head.weight", out_.lm_head));
    ASSIGN_OR_RETURN(out.enorm, Norm(prefix + "enorm", c_.hidden_size));
    ASSIGN_OR_RETURN(out.hnorm, Norm(prefix + "hnorm", c_.hidden_size));
    ASSIGN_OR_RETURN(out.shared_head_norm, Norm(prefix + "shared_head.norm", c_.hidden_size));
    ASSIGN_OR_RETURN(out.eh_proj, Linear(prefix + "eh_proj", c_.hidden_size, 2 * int64_t{c_.hidden_size}));
    return LoadLayer(c_.num_hidden_layers, out.layer);
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& c_;
  ModelWeights& out_;
};

}  // namespace

bool ModelWeights::has_bf16_experts() const {
  auto is_bf16 = [](const LayerWeights& layer) {
    return layer.moe.has_value() &&
           !(layer.moe->gate_proj.is_fp8() && layer.moe->up_proj.is_fp8() && layer.moe->down_proj.is_fp8());
  };
  return std::any_of(layers.begin(), layers.end(), is_bf16) || (mtp.has_value() && is_bf16(mtp->layer));
}

absl::StatusOr<std::unique_ptr<const ModelWeights>> LoadWeights(std::shared_ptr<const Checkpoint> checkpoint,
                                                                bool with_mtp) {
  if (with_mtp && !checkpoint->config().has_mtp()) {
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint->folder(), ": num_nextn_predict_layers is 0, there is no MTP layer to load"));
  }
  auto weights = std::make_unique<ModelWeights>();
  RETURN_IF_ERROR(Loader(std::move(checkpoint), *weights).LoadAll(with_mtp));
  return weights;
}

}  // namespace tandem::model

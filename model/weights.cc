#include "model/weights.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
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

// Says every few seconds how far a copy to a device is: the first minutes of a worker with a large checkpoint.
class Progress final {
 public:
  explicit Progress(int num_layers) : num_layers_(num_layers) {}

  void AfterLayer(int num_done, int64_t num_bytes) {
    const absl::Duration now = clock_.Now();
    if (now - said_ < kInterval && num_done < num_layers_) return;
    said_ = now;
    const double seconds = std::max(absl::ToDoubleSeconds(now - begin_), 1e-3);
    LOG_INFO("loading weights", {"layers", num_done}, {"of", num_layers_},
             {"gib", static_cast<double>(num_bytes) * 0x1p-30},
             {"gib_per_s", static_cast<double>(num_bytes) * 0x1p-30 / seconds},
             {"seconds_left", seconds * (num_layers_ - num_done) / num_done});
  }

 private:
  static constexpr absl::Duration kInterval = absl::Seconds(5);

  const int num_layers_;
  const base::Clock& clock_ = base::RealClock();
  const absl::Duration begin_ = clock_.Now();
  absl::Duration said_ = begin_;
};

class Loader final {
 public:
  Loader(std::shared_ptr<const Checkpoint> checkpoint, ModelWeights& out)
      : backend_(out.copies.backend()), checkpoint_(*checkpoint), c_(checkpoint->config()), out_(out) {
    out_.checkpoint = std::move(checkpoint);
  }

  absl::Status LoadAll(bool with_mtp) {
    ASSIGN_OR_RETURN(out_.embed_tokens, Bf16Matrix("model.embed_tokens.weight", c_.vocab_size, c_.hidden_size));
    ASSIGN_OR_RETURN(out_.lm_head, Bf16Matrix("lm_head.weight", c_.vocab_size, c_.hidden_size));
    ASSIGN_OR_RETURN(out_.norm, Norm("model.norm", c_.hidden_size));
    out_.layers.resize(c_.num_hidden_layers);
    Progress progress(c_.num_hidden_layers);
    for (int layer = 0; layer < c_.num_hidden_layers; ++layer) {
      RETURN_IF_ERROR(LoadLayer(layer, out_.layers[layer]));
      if (!backend_.is_host()) progress.AfterLayer(layer + 1, out_.copies.num_bytes());
    }
    if (with_mtp) RETURN_IF_ERROR(LoadMtp(out_.mtp.emplace()));
    return backend_.Synchronize();
  }

 private:
  // The bytes of a tensor as Ts where ops read them: in place on the host where they are aligned, else a copy.
  template <typename T>
  absl::StatusOr<const T*> Place(const Tensor& tensor) {
    const uint8_t* bytes = tensor.bytes.data();
    if (backend_.is_host() && reinterpret_cast<uintptr_t>(bytes) % alignof(T) == 0) {
      return reinterpret_cast<const T*>(bytes);
    }
    return PlaceCopy<T>(bytes, static_cast<int64_t>(tensor.bytes.size()));
  }
  template <typename T>
  absl::StatusOr<const T*> PlaceCopy(const void* bytes, int64_t num_bytes) {
    T* copy = out_.copies.Allocate<T>(num_bytes / static_cast<int64_t>(sizeof(T)));
    RETURN_IF_ERROR(out_.copies.status());
    RETURN_IF_ERROR(backend_.Upload({copy, bytes, num_bytes}));
    return copy;
  }
  // Of values made here, which need not live on.
  template <typename T>
  absl::StatusOr<const T*> PlaceValues(const std::vector<T>& values) {
    ASSIGN_OR_RETURN(const T* placed, PlaceCopy<T>(values.data(), static_cast<int64_t>(values.size() * sizeof(T))));
    RETURN_IF_ERROR(backend_.Synchronize());
    return placed;
  }

  absl::StatusOr<Matrix<const Bf16>> Bf16Matrix(const std::string& name, int64_t rows, int64_t columns) {
    ASSIGN_OR_RETURN(const Tensor* tensor, checkpoint_.Require(name, {DType::kBf16}, {rows, columns}));
    ASSIGN_OR_RETURN(const Bf16* values, Place<Bf16>(*tensor));
    return Matrix<const Bf16>(values, {rows, columns});
  }

  absl::StatusOr<Vector<const Bf16>> Norm(const std::string& name, int64_t dim) {
    ASSIGN_OR_RETURN(const Tensor* tensor, checkpoint_.Require(absl::StrCat(name, ".weight"), {DType::kBf16}, {dim}));
    ASSIGN_OR_RETURN(const Bf16* values, Place<Bf16>(*tensor));
    return Vector<const Bf16>(values, {dim});
  }

  // FP32 values; some exports store them as BF16.
  absl::StatusOr<Vector<const float>> FloatVector(const std::string& name, int64_t dim) {
    ASSIGN_OR_RETURN(const Tensor* tensor, checkpoint_.Require(name, {DType::kF32, DType::kBf16}, {dim}));
    if (tensor->dtype == DType::kF32) {
      ASSIGN_OR_RETURN(const float* in_place, Place<float>(*tensor));
      return Vector<const float>(in_place, {dim});
    }
    std::vector<Bf16> source(dim);  // the bytes may be aligned for nothing
    std::memcpy(source.data(), tensor->bytes.data(), dim * sizeof(Bf16));
    std::vector<float> values(dim);
    std::transform(source.begin(), source.end(), values.begin(), [](Bf16 value) { return kernels::ToFloat(value); });
    ASSIGN_OR_RETURN(const float* placed, PlaceValues(values));
    return Vector<const float>(placed, {dim});
  }

  // The tensors of one linear layer; no scale where its weight is BF16.
  struct LinearTensors {
    const Tensor* weight = nullptr;
    const Tensor* scale = nullptr;
  };
  absl::StatusOr<LinearTensors> FindLinear(const std::string& name, int64_t out_dim, int64_t in_dim) {
    const std::string weight_name = absl::StrCat(name, ".weight");
    LinearTensors tensors;
    ASSIGN_OR_RETURN(tensors.weight,
                     checkpoint_.Require(weight_name, {DType::kF8E4m3, DType::kBf16}, {out_dim, in_dim}));
    if (tensors.weight->dtype == DType::kBf16) return tensors;
    ASSIGN_OR_RETURN(tensors.scale, checkpoint_.Require(absl::StrCat(weight_name, "_scale_inv"), {DType::kF32},
                                                        {NumBlocks(out_dim), NumBlocks(in_dim)}));
    return tensors;
  }
  static int64_t NumBlocks(int64_t dim) { return (dim + kernels::kQuantGroup - 1) / kernels::kQuantGroup; }
  static kernels::Fp8Weight Fp8Of(const E4m3* weight, const float* scale, int64_t out_dim, int64_t in_dim) {
    return {.weight = {weight, {out_dim, in_dim}}, .scale = {scale, {NumBlocks(out_dim), NumBlocks(in_dim)}}};
  }

  absl::StatusOr<LinearWeight> Linear(const std::string& name, int64_t out_dim, int64_t in_dim) {
    ASSIGN_OR_RETURN(const LinearTensors tensors, FindLinear(name, out_dim, in_dim));
    LinearWeight linear;
    if (tensors.scale == nullptr) {
      ASSIGN_OR_RETURN(const Bf16* weight, Place<Bf16>(*tensors.weight));
      linear.bf16 = Matrix<const Bf16>(weight, {out_dim, in_dim});
      return linear;
    }
    ASSIGN_OR_RETURN(const E4m3* weight, Place<E4m3>(*tensors.weight));
    ASSIGN_OR_RETURN(const float* scale, Place<float>(*tensors.scale));
    linear.fp8 = Fp8Of(weight, scale, out_dim, in_dim);
    return linear;
  }

  absl::Status LoadMlp(const std::string& name, int64_t width, MlpWeights& out) {
    ASSIGN_OR_RETURN(out.gate_proj, Linear(absl::StrCat(name, ".gate_proj"), width, c_.hidden_size));
    ASSIGN_OR_RETURN(out.up_proj, Linear(absl::StrCat(name, ".up_proj"), width, c_.hidden_size));
    ASSIGN_OR_RETURN(out.down_proj, Linear(absl::StrCat(name, ".down_proj"), c_.hidden_size, width));
    return absl::OkStatus();
  }

  // One projection of all experts of a layer, in one block on a device.
  absl::Status LoadExperts(const std::string& prefix, const std::string& projection, int64_t out_dim, int64_t in_dim,
                           ExpertWeights& out) {
    std::vector<LinearTensors> experts(c_.n_routed_experts);
    for (int expert = 0; expert < c_.n_routed_experts; ++expert) {
      const std::string name = absl::StrCat(prefix, "experts.", expert, ".", projection);
      ASSIGN_OR_RETURN(experts[expert], FindLinear(name, out_dim, in_dim));
      if ((experts[expert].scale == nullptr) != (experts[0].scale == nullptr)) {
        return absl::InvalidArgumentError(absl::StrCat(checkpoint_.folder(), ": tensor '", name, ".weight' is ",
                                                       experts[expert].scale != nullptr ? "F8_E4M3" : "BF16",
                                                       ", unlike the experts before it in its layer"));
      }
    }
    if (experts[0].scale == nullptr) {
      for (const LinearTensors& expert : experts) {
        ASSIGN_OR_RETURN(const Bf16* weight, Place<Bf16>(*expert.weight));
        out.bf16.push_back(Matrix<const Bf16>(weight, {out_dim, in_dim}));
      }
      return absl::OkStatus();
    }
    if (backend_.is_host()) {
      for (const LinearTensors& expert : experts) {
        ASSIGN_OR_RETURN(const E4m3* weight, Place<E4m3>(*expert.weight));
        ASSIGN_OR_RETURN(const float* scale, Place<float>(*expert.scale));
        out.fp8.push_back(Fp8Of(weight, scale, out_dim, in_dim));
      }
      return absl::OkStatus();
    }
    const int64_t num_weights = out_dim * in_dim, num_scales = NumBlocks(out_dim) * NumBlocks(in_dim);
    E4m3* weights = out_.copies.Allocate<E4m3>(c_.n_routed_experts * num_weights);
    float* scales = out_.copies.Allocate<float>(c_.n_routed_experts * num_scales);
    RETURN_IF_ERROR(out_.copies.status());
    for (const LinearTensors& expert : experts) {
      RETURN_IF_ERROR(backend_.Upload({weights, expert.weight->bytes.data(), num_weights}));
      RETURN_IF_ERROR(
          backend_.Upload({scales, expert.scale->bytes.data(), num_scales * static_cast<int64_t>(sizeof(float))}));
      out.fp8.push_back(Fp8Of(weights, scales, out_dim, in_dim));
      weights += num_weights;
      scales += num_scales;
    }
    return absl::OkStatus();
  }

  absl::Status LoadMoe(const std::string& prefix, MoeWeights& out) {
    ASSIGN_OR_RETURN(out.gate, Bf16Matrix(prefix + "gate.weight", c_.n_routed_experts, c_.hidden_size));
    const std::string bias = prefix + "gate.e_score_correction_bias";
    if (checkpoint_.Find(bias) != nullptr) {
      ASSIGN_OR_RETURN(out.e_score_correction_bias, FloatVector(bias, c_.n_routed_experts));
    }
    const int64_t width = c_.moe_intermediate_size, hidden = c_.hidden_size;
    RETURN_IF_ERROR(LoadExperts(prefix, "gate_proj", width, hidden, out.gate_proj));
    RETURN_IF_ERROR(LoadExperts(prefix, "up_proj", width, hidden, out.up_proj));
    RETURN_IF_ERROR(LoadExperts(prefix, "down_proj", hidden, width, out.down_proj));
    if (c_.n_shared_experts == 0) return absl::OkStatus();
    return LoadMlp(prefix + "shared_experts", int64_t{c_.n_shared_experts} * c_.moe_intermediate_size,
                   out.shared_experts.emplace());
  }

  // kv_b_proj as BF16, weight times scale rounded once: the absorbed form multiplies by it without quantising.
  absl::Status LoadKvB(const std::string& name, AttentionWeights& out) {
    const int64_t head_rows = c_.qk_nope_head_dim + c_.v_head_dim;
    const int64_t rows = c_.num_attention_heads * head_rows;
    ASSIGN_OR_RETURN(const LinearTensors tensors, FindLinear(name, rows, kLatentDim));
    Matrix<const Bf16> kv_b;
    if (tensors.scale == nullptr) {
      ASSIGN_OR_RETURN(kv_b, Bf16Matrix(absl::StrCat(name, ".weight"), rows, kLatentDim));
    } else {
      // On the host for every backend: one set of bits.
      std::vector<float> scale(NumBlocks(rows) * NumBlocks(kLatentDim));  // the bytes may be aligned for nothing
      std::memcpy(scale.data(), tensors.scale->bytes.data(), scale.size() * sizeof(float));
      std::vector<Bf16> dequantised(rows * kLatentDim);
      RETURN_IF_ERROR(kernels::DequantizeFp8Weight(
          {.weight = Fp8Of(reinterpret_cast<const E4m3*>(tensors.weight->bytes.data()), scale.data(), rows, kLatentDim),
           .out = {dequantised.data(), {rows, kLatentDim}}}));
      ASSIGN_OR_RETURN(const Bf16* values, PlaceValues(dequantised));
      kv_b = Matrix<const Bf16>(values, {rows, kLatentDim});
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

  kernels::Backend& backend_;
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

absl::StatusOr<std::unique_ptr<const ModelWeights>> LoadWeights(kernels::Backend& backend,
                                                                std::shared_ptr<const Checkpoint> checkpoint,
                                                                bool with_mtp) {
  if (with_mtp && !checkpoint->config().has_mtp()) {
    return absl::InvalidArgumentError(
        absl::StrCat(checkpoint->folder(), ": num_nextn_predict_layers is 0, there is no MTP layer to load"));
  }
  auto weights = std::make_unique<ModelWeights>(backend, checkpoint->config());
  RETURN_IF_ERROR(Loader(std::move(checkpoint), *weights).LoadAll(with_mtp));
  return weights;
}

}  // namespace tandem::model

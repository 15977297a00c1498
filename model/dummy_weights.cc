#include "model/dummy_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

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

constexpr int64_t kBlockValues = int64_t{1} << 22;
// E4M3 codes of this spread use the format's normal range, and values beyond it (448) do not occur.
constexpr float kE4m3Spread = 64;

// SplitMix64: a counter in, a word out.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Close to a standard normal value, never beyond 6: twelve uniform ones.
float NormalFrom(uint64_t counter) {
  float sum = -6;
  for (uint64_t part = 0; part < 3; ++part) {
    const uint64_t word = Mix(counter * 3 + part);
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<float>((word >> shift) & 0xffff) * 0x1p-16f;
  }
  return sum;
}

class Maker final {
 public:
  Maker(const ModelConfig& config, uint64_t seed, ModelWeights& out)
      : backend_(out.copies.backend()), c_(config), seed_(seed), out_(out), blocks_(backend_) {}

  absl::Status MakeAll(bool with_mtp) {
    RETURN_IF_ERROR(MakeBlocks());
    ASSIGN_OR_RETURN(out_.embed_tokens, Bf16Matrix(c_.vocab_size, c_.hidden_size, 1));
    ASSIGN_OR_RETURN(out_.lm_head, Bf16Matrix(c_.vocab_size, c_.hidden_size, SpreadOf(c_.hidden_size)));
    ASSIGN_OR_RETURN(out_.norm, Ones<Bf16>(c_.hidden_size));
    out_.layers.resize(c_.num_hidden_layers);
    for (int layer = 0; layer < c_.num_hidden_layers; ++layer) RETURN_IF_ERROR(MakeLayer(layer, out_.layers[layer]));
    if (with_mtp) RETURN_IF_ERROR(MakeMtp(out_.mtp.emplace()));
    return backend_.Synchronize();
  }

 private:
  static float SpreadOf(int64_t in_dim) { return 1 / std::sqrt(static_cast<float>(in_dim)); }

  // Values of spread 1 and of the power of two below each spread that is asked for are one block each.
  absl::Status MakeBlocks() {
    std::vector<float> normal(kBlockValues);
    for (int64_t i = 0; i < kBlockValues; ++i) normal[i] = NormalFrom(seed_ * kBlockValues + static_cast<uint64_t>(i));
    std::vector<E4m3> codes(kBlockValues);
    std::transform(normal.begin(), normal.end(), codes.begin(),
                   [](float value) { return kernels::ToE4m3(value * kE4m3Spread); });
    E4m3* on_backend = blocks_.Allocate<E4m3>(kBlockValues);
    RETURN_IF_ERROR(blocks_.status());
    e4m3_ = on_backend;
    RETURN_IF_ERROR(backend_.Upload({on_backend, codes.data(), kBlockValues}));
    for (size_t i = 0; i < bf16_.size(); ++i) {
      std::vector<Bf16> values(kBlockValues);
      const float spread = std::ldexp(1.0f, -static_cast<int>(i));
      std::transform(normal.begin(), normal.end(), values.begin(),
                     [=](float value) { return kernels::ToBf16(value * spread); });
      Bf16* block = blocks_.Allocate<Bf16>(kBlockValues);
      RETURN_IF_ERROR(blocks_.status());
      bf16_[i] = block;
      RETURN_IF_ERROR(backend_.Upload({block, values.data(), kBlockValues * int64_t{sizeof(Bf16)}}));
      RETURN_IF_ERROR(backend_.Synchronize());
    }
    return backend_.Synchronize();
  }

  // `count` values from the block, beginning where no other tensor is likely to begin.
  template <typename T>
  absl::StatusOr<T*> Cut(const T* block, int64_t count) {
    T* values = out_.copies.Allocate<T>(count);
    RETURN_IF_ERROR(out_.copies.status());
    int64_t begin = static_cast<int64_t>(Mix(seed_ ^ (0xd1ull << 32) ^ num_cut_++) % kBlockValues) / 128 * 128;
    for (int64_t done = 0; done < count; begin = 0) {
      const int64_t part = std::min(count - done, kBlockValues - begin);
      RETURN_IF_ERROR(backend_.Copy({values + done, block + begin, part * static_cast<int64_t>(sizeof(T))}));
      done += part;
    }
    return values;
  }
  template <typename T>
  absl::StatusOr<const T*> Put(const std::vector<T>& values) {
    T* placed = out_.copies.Allocate<T>(static_cast<int64_t>(values.size()));
    RETURN_IF_ERROR(out_.copies.status());
    RETURN_IF_ERROR(backend_.Upload({placed, values.data(), static_cast<int64_t>(values.size() * sizeof(T))}));
    RETURN_IF_ERROR(backend_.Synchronize());  // the values need not live on
    return placed;
  }

  absl::StatusOr<Matrix<const Bf16>> Bf16Matrix(int64_t rows, int64_t columns, float spread) {
    const auto exponent = static_cast<size_t>(std::clamp<int>(-std::ilogb(spread), 0, bf16_.size() - 1));
    ASSIGN_OR_RETURN(const Bf16* values, Cut(bf16_[exponent], rows * columns));
    return Matrix<const Bf16>(values, {rows, columns});
  }
  template <typename T>
  absl::StatusOr<Vector<const T>> Ones(int64_t dim, float value = 1) {
    std::vector<T> values(dim);
    if constexpr (std::is_same_v<T, Bf16>) {
      std::fill(values.begin(), values.end(), kernels::ToBf16(value));
    } else {
      std::fill(values.begin(), values.end(), value);
    }
    ASSIGN_OR_RETURN(const T* placed, Put(values));
    return Vector<const T>(placed, {dim});
  }

  // num_experts tensors of one shape side by side.
  absl::StatusOr<std::vector<kernels::Fp8Weight>> Fp8Weights(int num_experts, int64_t out_dim, int64_t in_dim) {
    ASSIGN_OR_RETURN(const E4m3* weights, Cut(e4m3_, num_experts * out_dim * in_dim));
    const int64_t rows = (out_dim + kernels::kQuantGroup - 1) / kernels::kQuantGroup;
    const int64_t columns = in_dim / kernels::kQuantGroup;
    const float scale = std::ldexp(1.0f, static_cast<int>(std::lround(std::log2(SpreadOf(in_dim) / kE4m3Spread))));
    ASSIGN_OR_RETURN(const float* scales, Put(std::vector<float>(num_experts * rows * columns, scale)));
    std::vector<kernels::Fp8Weight> all(num_experts);
    for (int expert = 0; expert < num_experts; ++expert) {
      all[expert] = {.weight = {weights + expert * out_dim * in_dim, {out_dim, in_dim}},
                     .scale = {scales + expert * rows * columns, {rows, columns}}};
    }
    return all;
  }

  absl::StatusOr<LinearWeight> Linear(int64_t out_dim, int64_t in_dim) {
    LinearWeight linear;
    if (c_.has_fp8_weights) {
      ASSIGN_OR_RETURN(const std::vector<kernels::Fp8Weight> weights, Fp8Weights(1, out_dim, in_dim));
      linear.fp8 = weights.front();
    } else {
      ASSIGN_OR_RETURN(linear.bf16, Bf16Matrix(out_dim, in_dim, SpreadOf(in_dim)));
    }
    return linear;
  }

  absl::Status MakeMlp(int64_t width, MlpWeights& out) {
    ASSIGN_OR_RETURN(out.gate_proj, Linear(width, c_.hidden_size));
    ASSIGN_OR_RETURN(out.up_proj, Linear(width, c_.hidden_size));
    ASSIGN_OR_RETURN(out.down_proj, Linear(c_.hidden_size, width));
    return absl::OkStatus();
  }

  absl::Status MakeExperts(int64_t out_dim, int64_t in_dim, ExpertWeights& out) {
    if (c_.has_fp8_weights) {
      ASSIGN_OR_RETURN(out.fp8, Fp8Weights(c_.n_routed_experts, out_dim, in_dim));
      return absl::OkStatus();
    }
    for (int expert = 0; expert < c_.n_routed_experts; ++expert) {
      ASSIGN_OR_RETURN(const Matrix<const Bf16> weight, Bf16Matrix(out_dim, in_dim, SpreadOf(in_dim)));
      out.bf16.push_back(weight);
    }
    return absl::OkStatus();
  }

  absl::Status MakeMoe(MoeWeights& out) {
    const int64_t width = c_.moe_intermediate_size, hidden = c_.hidden_size;
    ASSIGN_OR_RETURN(out.gate, Bf16Matrix(c_.n_routed_experts, hidden, SpreadOf(hidden)));
    ASSIGN_OR_RETURN(out.e_score_correction_bias, Ones<float>(c_.n_routed_experts, 0));
    RETURN_IF_ERROR(MakeExperts(width, hidden, out.gate_proj));
    RETURN_IF_ERROR(MakeExperts(width, hidden, out.up_proj));
    RETURN_IF_ERROR(MakeExperts(hidden, width, out.down_proj));
    if (c_.n_shared_experts == 0) return absl::OkStatus();
    return MakeMlp(c_.n_shared_experts * width, out.shared_experts.emplace());
  }

  absl::Status MakeAttention(AttentionWeights& out) {
    const int64_t heads = c_.num_attention_heads, head_rows = c_.qk_nope_head_dim + c_.v_head_dim;
    ASSIGN_OR_RETURN(out.q_a_proj, Linear(c_.q_lora_rank, c_.hidden_size));
    ASSIGN_OR_RETURN(out.q_a_layernorm, Ones<Bf16>(c_.q_lora_rank));
    ASSIGN_OR_RETURN(out.q_b_proj, Linear(heads * c_.qk_head_dim(), c_.q_lora_rank));
    ASSIGN_OR_RETURN(out.kv_a_proj_with_mqa, Linear(kLatentDim + kRopeDim, c_.hidden_size));
    ASSIGN_OR_RETURN(out.kv_a_layernorm, Ones<Bf16>(kLatentDim));
    ASSIGN_OR_RETURN(const Matrix<const Bf16> kv_b, Bf16Matrix(heads * head_rows, kLatentDim, SpreadOf(kLatentDim)));
    const kernels::Cube<const Bf16>::Dims strides = {head_rows * kLatentDim, kLatentDim, 1};
    out.w_uk = kernels::Cube<const Bf16>(kv_b.data, {heads, c_.qk_nope_head_dim, kLatentDim}, strides);
    out.w_uv = kernels::Cube<const Bf16>(kv_b.Row(c_.qk_nope_head_dim), {heads, c_.v_head_dim, kLatentDim}, strides);
    ASSIGN_OR_RETURN(out.o_proj, Linear(c_.hidden_size, heads * c_.v_head_dim));
    ASSIGN_OR_RETURN(out.indexer.wq_b, Linear(int64_t{c_.index_n_heads} * kIndexDim, c_.q_lora_rank));
    ASSIGN_OR_RETURN(out.indexer.wk, Linear(kIndexDim, c_.hidden_size));
    ASSIGN_OR_RETURN(out.indexer.k_norm_weight, Ones<float>(kIndexDim));
    ASSIGN_OR_RETURN(out.indexer.k_norm_bias, Ones<float>(kIndexDim, 0));
    ASSIGN_OR_RETURN(out.indexer.weights_proj, Bf16Matrix(c_.index_n_heads, c_.hidden_size, SpreadOf(c_.hidden_size)));
    return absl::OkStatus();
  }

  absl::Status MakeLayer(int layer, LayerWeights& out) {
    ASSIGN_OR_RETURN(out.input_layernorm, Ones<Bf16>(c_.hidden_size));
    ASSIGN_OR_RETURN(out.post_attention_layernorm, Ones<Bf16>(c_.hidden_size));
    RETURN_IF_ERROR(MakeAttention(out.self_attn));
    if (c_.IsMoeLayer(layer)) return MakeMoe(out.moe.emplace());
    return MakeMlp(c_.intermediate_size, out.mlp.emplace());
  }

  absl::Status MakeMtp(MtpWeights& out) {
    out.embed_tokens = out_.embed_tokens;
    out.head = out_.lm_head;
    ASSIGN_OR_RETURN(out.enorm, Ones<Bf16>(c_.hidden_size));
    ASSIGN_OR_RETURN(out.hnorm, Ones<Bf16>(c_.hidden_size));
    ASSIGN_OR_RETURN(out.shared_head_norm, Ones<Bf16>(c_.hidden_size));
    ASSIGN_OR_RETURN(out.eh_proj.bf16,
                     Bf16Matrix(c_.hidden_size, 2 * int64_t{c_.hidden_size}, SpreadOf(2 * c_.hidden_size)));
    return MakeLayer(c_.num_hidden_layers, out.layer);
  }

  kernels::Backend& backend_;
  const ModelConfig& c_;
  const uint64_t seed_;
  ModelWeights& out_;
  kernels::BackendMemory blocks_;
  const E4m3* e4m3_ = nullptr;
  std::array<const Bf16*, 9> bf16_ = {};  // of spread 2^-i
  uint64_t num_cut_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const ModelWeights>> MakeDummyWeights(kernels::Backend& backend,
                                                                     const ModelConfig& config, bool with_mtp,
                                                                     uint64_t seed) {
  auto weights = std::make_unique<ModelWeights>(backend, config);
  RETURN_IF_ERROR(Maker(config, seed, *weights).MakeAll(with_mtp));
  return weights;
}

std::string DummyModelHash(const ModelConfig& config, uint64_t seed) {
  uint64_t words[4] = {1, 2, 3, 4};
  for (const char c : absl::StrCat("dummy weights\n", seed, "\n", config.CanonicalText())) {
    for (uint64_t& word : words) word = Mix(word ^ static_cast<uint8_t>(c));
  }
  return absl::StrCat(absl::Hex(words[0], absl::kZeroPad16), absl::Hex(words[1], absl::kZeroPad16),
                      absl::Hex(words[2], absl::kZeroPad16), absl::Hex(words[3], absl::kZeroPad16));
}

}  // namespace tandem::model

// A checkpoint's tensors in the form that the layers read, named as in the checkpoint.
//
// On the host, views point into the checkpoint's mapping wherever its bytes are aligned for their type; everything else
// (misaligned tensors, BF16 stored where FP32 is read, kv_b_proj dequantised for the absorbed form) is a copy owned
// here. On a device everything is a copy; the experts of one projection of a layer stand there at equal distances.
// Tested by weights_test.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/backend_memory.h"
#include "kernels/ops.h"
#include "model/checkpoint.h"

namespace tandem::model {

// y = x W^T with W either FP8 with block scales, whose input is quantised, or BF16, whose input is not.
struct LinearWeight {
  kernels::Fp8Weight fp8;
  kernels::Matrix<const kernels::Bf16> bf16;  // [out_dim, in_dim]; null where fp8 is set

  bool is_fp8() const { return bf16.is_null(); }
  int64_t out_dim() const { return is_fp8() ? fp8.weight.shape[0] : bf16.shape[0]; }
  int64_t in_dim() const { return is_fp8() ? fp8.weight.shape[1] : bf16.shape[1]; }
};

struct IndexerWeights {
  LinearWeight wq_b;  // [index_n_heads * 128, q_lora_rank]
  LinearWeight wk;    // [128, hidden]
  kernels::Vector<const float> k_norm_weight;
  kernels::Vector<const float> k_norm_bias;
  kernels::Matrix<const kernels::Bf16> weights_proj;  // [index_n_heads, hidden]
};

struct AttentionWeights {
  LinearWeight q_a_proj, q_b_proj, kv_a_proj_with_mqa, o_proj;
  kernels::Vector<const kernels::Bf16> q_a_layernorm, kv_a_layernorm;
  kernels::Cube<const kernels::Bf16> w_uk;  // [heads, nope, 512], rows of kv_b_proj
  kernels::Cube<const kernels::Bf16> w_uv;  // [heads, v, 512]
  IndexerWeights indexer;
};

struct MlpWeights {
  LinearWeight gate_proj, up_proj, down_proj;
};

// All experts of a layer are FP8 or all are BF16.
struct ExpertWeights {
  std::vector<kernels::Fp8Weight> fp8;  // [n_routed_experts], empty where they are BF16
  std::vector<kernels::Matrix<const kernels::Bf16>> bf16;
  bool is_fp8() const { return bf16.empty(); }
};

struct MoeWeights {
  kernels::Matrix<const kernels::Bf16> gate;             // [n_routed_experts, hidden]
  kernels::Vector<const float> e_score_correction_bias;  // null where the checkpoint has none
  ExpertWeights gate_proj, up_proj, down_proj;
  std::optional<MlpWeights> shared_experts;
};

struct LayerWeights {
  kernels::Vector<const kernels::Bf16> input_layernorm, post_attention_layernorm;
  AttentionWeights self_attn;
  std::optional<MlpWeights> mlp;  // dense layers
  std::optional<MoeWeights> moe;  // the others
};

struct MtpWeights {
  kernels::Matrix<const kernels::Bf16> embed_tokens, head;  // its own where the checkpoint has them, else the model's
  kernels::Vector<const kernels::Bf16> enorm, hnorm, shared_head_norm;
  LinearWeight eh_proj;  // [hidden, 2 * hidden], BF16 in every release
  LayerWeights layer;
};

struct ModelWeights {
  kernels::Matrix<const kernels::Bf16> embed_tokens, lm_head;  // [vocab, hidden]
  kernels::Vector<const kernels::Bf16> norm;
  std::vector<LayerWeights> layers;
  std::optional<MtpWeights> mtp;

  bool has_bf16_experts() const;

  const ModelConfig config;
  std::shared_ptr<const Checkpoint> checkpoint;  // keeps the mapped bytes; null where weights are of no checkpoint
  kernels::BackendMemory copies;

  ModelWeights(kernels::Backend& backend, const ModelConfig& config) : config(config), copies(backend) {}
};

// INVALID_ARGUMENT where a tensor is missing or has another shape or dtype, naming file and tensor. The MTP layer is
// read, and asked for, only with_mtp. RESOURCE_EXHAUSTED where the backend, which outlives the weights, has no room.
absl::StatusOr<std::unique_ptr<const ModelWeights>> LoadWeights(kernels::Backend& backend,
                                                                std::shared_ptr<const Checkpoint> checkpoint,
                                                                bool with_mtp);

}  // namespace tandem::model

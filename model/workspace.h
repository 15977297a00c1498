// Every intermediate tensor of a forward pass, allocated once for the most rows that a batch may have.
//
// Buffers are views of num_rows_max rows; a pass over n rows works on their first n. A buffer is named by what it holds
// and written by one function only, except x and residual, which every layer updates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/types/span.h"
#include "kernels/ops.h"
#include "model/model_config.h"

namespace tandem::model {

// Rows in the form that FP8 linears read.
struct QuantizedRows {
  kernels::Matrix<kernels::E4m3> q;  // [rows, dim]
  kernels::Matrix<float> scale;      // [rows, dim / 128]
  QuantizedRows First(int64_t rows) const { return {q.Slice(0, rows), scale.Slice(0, rows)}; }
};

class Workspace final {
 public:
  // num_threads: how many share an op's work, the caller among them. num_positions_max: the longest context whose index
  // logits must fit. has_bf16_experts: their rows are gathered.
  Workspace(const ModelConfig& config, int64_t num_rows_max, int64_t num_positions_max, bool has_bf16_experts,
            int num_threads);

  // Index logits are made and consumed this many rows at a time: [rows, context] would not fit long contexts.
  static constexpr int kIndexTileRows = 32;

  const std::unique_ptr<kernels::ThreadPool> threads;
  // What FP8 linears work in: room for the widest.
  absl::Span<std::byte> linear;
  // Between layers, [rows, hidden].
  kernels::Matrix<kernels::Bf16> x, residual, normed;
  QuantizedRows normed_q;
  // Attention.
  kernels::Matrix<kernels::Bf16> q_a;  // [rows, q_lora_rank]
  QuantizedRows q_a_q;
  kernels::Matrix<kernels::Bf16> q;         // [rows, heads * qk_head_dim]
  kernels::Matrix<kernels::Bf16> kv_a;      // [rows, 512 + 64]
  kernels::Matrix<kernels::Bf16> latent;    // [rows, 512]
  kernels::Cube<kernels::Bf16> q_latent;    // [rows, heads, 512]
  kernels::Cube<kernels::Bf16> latent_out;  // [rows, heads, 512]
  kernels::Cube<kernels::Bf16> head_out;    // [rows, heads, v_head_dim]
  QuantizedRows head_out_q;                 // [rows, heads * v_head_dim]
  // Indexer.
  kernels::Matrix<kernels::Bf16> index_q;  // [rows, index_n_heads * 128]
  kernels::Matrix<kernels::Bf16> index_k;  // [rows, 128]
  QuantizedRows index_q_q, index_k_q;
  kernels::Matrix<float> index_weights;  // [rows, index_n_heads]
  kernels::Matrix<float> index_logits;   // [kIndexTileRows, num_positions_max]
  kernels::Vector<int32_t> nan_count;    // [kIndexTileRows]
  kernels::Matrix<int32_t> selected;     // [rows, index_topk]
  // Router and experts; a pair is one row at one of its experts.
  kernels::Matrix<float> router_logits;       // [rows, n_routed_experts]
  kernels::Matrix<int32_t> expert_ids;        // [rows, num_experts_per_tok]
  kernels::Matrix<float> expert_weights;      // [rows, num_experts_per_tok]
  kernels::Matrix<int32_t> row_pairs;         // [rows, num_experts_per_tok]
  kernels::Vector<int32_t> pair_rows;         // [pairs]
  kernels::Vector<int32_t> group_offsets;     // [n_routed_experts + 1]
  kernels::Matrix<kernels::Bf16> pair_in;     // [pairs, hidden], for BF16 experts only
  kernels::Matrix<kernels::Bf16> expert_out;  // [pairs, hidden]
  kernels::Matrix<kernels::Bf16> shared_out;  // [rows, hidden]
  // Of a dense MLP, the shared experts or the routed ones, one after another: room for the widest.
  struct MlpBuffers {
    kernels::Matrix<kernels::Bf16> gate, up;
    QuantizedRows product_q;
  };
  MlpBuffers Mlp(int64_t rows, int64_t width) const;
  // Ends of the model.
  kernels::Matrix<kernels::Bf16> head_x, head_residual;  // [rows, hidden]: the rows whose logits are wanted
  kernels::Matrix<kernels::Bf16> mtp_in;                 // [rows, 2 * hidden]
  QuantizedRows mtp_in_q;

 private:
  template <typename T>
  T* Allocate(int64_t count);
  template <typename T, size_t kRank>
  void Make(kernels::TensorView<T, kRank>& view, const typename kernels::TensorView<T, kRank>::Dims& shape);
  void MakeQuantized(QuantizedRows& rows, int64_t num_rows, int64_t dim);

  struct FreeDeleter {
    void operator()(std::byte* bytes) const;
  };
  std::deque<std::unique_ptr<std::byte[], FreeDeleter>> allocations_;
  kernels::Bf16* mlp_gate_ = nullptr;
  kernels::Bf16* mlp_up_ = nullptr;
  kernels::E4m3* mlp_product_ = nullptr;
  float* mlp_product_scale_ = nullptr;
  int64_t mlp_elements_max_ = 0;
};

}  // namespace tandem::model

// Every intermediate tensor of a forward pass, allocated once for the most rows that a batch may have.
//
// Buffers are views of num_rows_max rows of the backend's memory; a pass over n rows works on their first n. A buffer
// is named by what it holds and written by one function only, except x and residual, which every layer updates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/backend_memory.h"
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
  // num_positions_max: the longest context whose index logits must fit. has_bf16_experts: their rows are gathered.
  // has_ends_apart: what a caller takes or gives is not what ops write or read. Views are null where status() is not
  // OK. The backend outlives this.
  // expert_rows_max, expert_pairs_max: what the experts may have to compute at a time, where that is more than these
  // rows at all of their experts. dense_context_max: the longest list of a row, where that is more than index_topk.
  Workspace(kernels::Backend& backend, const ModelConfig& config, int64_t num_rows_max, int64_t num_positions_max,
            bool has_bf16_experts, bool has_ends_apart, int64_t expert_rows_max = 0, int64_t expert_pairs_max = 0,
            int64_t dense_context_max = 0);

  // RESOURCE_EXHAUSTED where the backend has no room.
  const absl::Status& status() const { return memory_.status(); }
  int64_t num_bytes() const { return memory_.num_bytes(); }

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
  // [tile, positions of whole pages]: made and consumed a tile of rows at a time; [rows, context] would not fit long
  // contexts.
  kernels::Matrix<float> index_logits;
  kernels::Vector<int32_t> nan_counts;  // [layers * rows], of a batch of n rows the first layers * n
  kernels::Matrix<int32_t>
      selected;  // [rows, the longest list of a row: index_topk, or more where dense attention goes on]
  // Router and experts; a pair is one row at one of its experts.
  kernels::Matrix<float> router_logits;       // [rows, n_routed_experts]
  kernels::Matrix<int32_t> expert_ids;        // [rows, num_experts_per_tok]
  kernels::Matrix<float> expert_weights;      // [rows, num_experts_per_tok]
  kernels::Matrix<int32_t> row_pairs;         // [rows, num_experts_per_tok]
  kernels::Vector<int32_t> pair_rows;         // [pairs]
  kernels::Vector<int32_t> group_offsets;     // [n_routed_experts + 1]
  kernels::Matrix<kernels::Bf16> pair_in;     // [pairs, hidden], for BF16 experts only
  QuantizedRows pair_in_q;                    // [pairs, hidden], where ops do not read the host's memory
  kernels::Matrix<kernels::Bf16> expert_out;  // [pairs, hidden]
  kernels::Matrix<kernels::Bf16> shared_out;  // [rows, hidden]
  // Of pairs that came from other ranks: where each stands among the experts' results, and these in its order.
  kernels::Vector<int32_t> pair_order;         // [expert_pairs_max]
  kernels::Matrix<kernels::Bf16> arrived_out;  // [expert_pairs_max, hidden]
  // Of a dense MLP or the routed experts, one after another: room for the widest.
  struct MlpBuffers {
    kernels::Matrix<kernels::Bf16> gate, up;
    QuantizedRows product_q;
  };
  MlpBuffers Mlp(int64_t rows, int64_t width) const;
  // Of the shared experts, which may run beside the routed ones.
  MlpBuffers SharedMlp(int64_t rows) const {
    return {shared_mlp_.gate.Slice(0, rows), shared_mlp_.up.Slice(0, rows), shared_mlp_.product_q.First(rows)};
  }
  // Ends of the model.
  kernels::Matrix<kernels::Bf16> head_x, head_residual;  // [rows, hidden]: the rows whose logits are wanted
  kernels::Matrix<kernels::Bf16> mtp_in;                 // [rows, 2 * hidden]
  QuantizedRows mtp_in_q;
  // What a caller on the host gives or takes, where the ends are apart; else empty.
  kernels::Matrix<kernels::Bf16> hidden;  // [rows, hidden]
  kernels::Matrix<float> logits;          // [tile, vocab]: rows of logits leave a tile at a time

 private:
  template <typename T, size_t kRank>
  void Make(kernels::TensorView<T, kRank>& view, const typename kernels::TensorView<T, kRank>::Dims& shape);
  void MakeQuantized(QuantizedRows& rows, int64_t num_rows, int64_t dim);

  kernels::BackendMemory memory_;
  kernels::Bf16* mlp_gate_ = nullptr;
  kernels::Bf16* mlp_up_ = nullptr;
  kernels::E4m3* mlp_product_ = nullptr;
  float* mlp_product_scale_ = nullptr;
  int64_t mlp_elements_max_ = 0;
  MlpBuffers shared_mlp_;
};

}  // namespace tandem::model

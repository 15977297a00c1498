#include "model/workspace.h"

#include <algorithm>

#include "base/check.h"
#include "kvcache/kv_layout.h"

namespace tandem::model {
namespace {

// On the host a tile is what the caches hold; on a device it is as large as memory allows, since launches cost more.
constexpr int64_t kHostTileRows = 32;
constexpr int64_t kDeviceTileBytes = int64_t{512} << 20;
constexpr int64_t kHeadTileRows = 128;

int64_t IndexTileRows(const kernels::Backend& backend, int64_t num_rows_max, int64_t num_positions_max) {
  const int64_t rows_max =
      backend.is_host() ? kHostTileRows : kDeviceTileBytes / (num_positions_max * static_cast<int64_t>(sizeof(float)));
  return std::clamp<int64_t>(rows_max, 1, num_rows_max);
}

}  // namespace

template <typename T, size_t kRank>
void Workspace::Make(kernels::TensorView<T, kRank>& view, const typename kernels::TensorView<T, kRank>::Dims& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  view = kernels::TensorView<T, kRank>(memory_.Allocate<T>(count), shape);
}

void Workspace::MakeQuantized(QuantizedRows& rows, int64_t num_rows, int64_t dim) {
  Make(rows.q, {num_rows, dim});
  Make(rows.scale, {num_rows, dim / kernels::kQuantGroup});
}

Workspace::Workspace(kernels::Backend& backend, const ModelConfig& c, int64_t num_rows_max, int64_t num_positions_max,
                     bool has_bf16_experts, bool has_ends_apart, int64_t expert_rows_max, int64_t expert_pairs_max,
                     int64_t dense_context_max)
    : memory_(backend) {
  const int64_t rows = num_rows_max, heads = c.num_attention_heads, hidden = c.hidden_size;
  const int64_t pairs = std::max(rows * c.num_experts_per_tok, expert_pairs_max);
  Make(x, {rows, hidden});
  Make(residual, {rows, hidden});
  Make(normed, {rows, hidden});
  MakeQuantized(normed_q, rows, hidden);

  Make(q_a, {rows, c.q_lora_rank});
  MakeQuantized(q_a_q, rows, c.q_lora_rank);
  Make(q, {rows, heads * c.qk_head_dim()});
  Make(kv_a, {rows, kvcache::kLatentDim + kvcache::kRopeDim});
  Make(latent, {rows, kvcache::kLatentDim});
  Make(q_latent, {rows, heads, kvcache::kLatentDim});
  Make(latent_out, {rows, heads, kvcache::kLatentDim});
  Make(head_out, {rows, heads, c.v_head_dim});
  MakeQuantized(head_out_q, rows, heads * c.v_head_dim);

  Make(index_q, {rows, int64_t{c.index_n_heads} * kvcache::kIndexDim});
  Make(index_k, {rows, kvcache::kIndexDim});
  MakeQuantized(index_q_q, rows, int64_t{c.index_n_heads} * kvcache::kIndexDim);
  MakeQuantized(index_k_q, rows, kvcache::kIndexDim);
  Make(index_weights, {rows, c.index_n_heads});
  const int64_t columns = kvcache::PagesForTokens(num_positions_max) * int64_t{kvcache::kPageTokens};
  Make(index_logits, {IndexTileRows(backend, rows, columns), columns});
  Make(nan_counts, {c.num_layers() * rows});
  Make(selected, {rows, std::max<int64_t>(c.index_topk, dense_context_max)});

  Make(router_logits, {rows, c.n_routed_experts});
  Make(expert_ids, {rows, c.num_experts_per_tok});
  Make(expert_weights, {rows, c.num_experts_per_tok});
  Make(row_pairs, {rows, c.num_experts_per_tok});
  Make(pair_order, {expert_pairs_max});
  Make(arrived_out, {expert_pairs_max, hidden});
  Make(pair_rows, {pairs});
  Make(group_offsets, {int64_t{c.n_routed_experts} + 1});
  Make(pair_in, {has_bf16_experts ? pairs : 0, hidden});
  MakeQuantized(pair_in_q, backend.is_host() ? 0 : pairs, hidden);
  Make(expert_out, {pairs, hidden});
  Make(shared_out, {rows, hidden});

  const int64_t shared_width = int64_t{c.n_shared_experts} * c.moe_intermediate_size;
  Make(shared_mlp_.gate, {rows, shared_width});
  Make(shared_mlp_.up, {rows, shared_width});
  MakeQuantized(shared_mlp_.product_q, rows, shared_width);
  mlp_elements_max_ = std::max(rows * c.intermediate_size, pairs * c.moe_intermediate_size);
  mlp_gate_ = memory_.Allocate<kernels::Bf16>(mlp_elements_max_);
  mlp_up_ = memory_.Allocate<kernels::Bf16>(mlp_elements_max_);
  mlp_product_ = memory_.Allocate<kernels::E4m3>(mlp_elements_max_);
  mlp_product_scale_ = memory_.Allocate<float>(mlp_elements_max_ / kernels::kQuantGroup);

  const int64_t linear_bytes = kernels::Fp8LinearWorkspaceBytes(
      1, std::max({mlp_elements_max_, rows * 2 * hidden, expert_rows_max * hidden, rows * c.q_lora_rank,
                   rows * heads * c.v_head_dim, pair_in_q.q.num_elements()}));
  linear = absl::MakeSpan(memory_.Allocate<std::byte>(linear_bytes), linear_bytes);

  Make(head_x, {rows, hidden});
  Make(head_residual, {rows, hidden});
  Make(mtp_in, {rows, 2 * hidden});
  MakeQuantized(mtp_in_q, rows, 2 * hidden);
  Make(this->hidden, {has_ends_apart ? rows : 0, hidden});
  Make(logits, {has_ends_apart ? std::min(rows, kHeadTileRows) : 0, c.vocab_size});
}

Workspace::MlpBuffers Workspace::Mlp(int64_t rows, int64_t width) const {
  TANDEM_CHECK(rows * width <= mlp_elements_max_, "the workspace holds the widest MLP");
  return {.gate = {mlp_gate_, {rows, width}},
          .up = {mlp_up_, {rows, width}},
          .product_q = {.q = {mlp_product_, {rows, width}},
                        .scale = {mlp_product_scale_, {rows, width / kernels::kQuantGroup}}}};
}

}  // namespace tandem::model

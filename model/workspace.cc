#include "model/workspace.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "kvcache/kv_layout.h"

namespace tandem::model {
namespace {

constexpr int64_t kAlignment = 64;  // a cache line; what ops ask of their workspace

}  // namespace

void Workspace::FreeDeleter::operator()(std::byte* bytes) const { std::free(bytes); }

template <typename T>
T* Workspace::Allocate(int64_t count) {
  const int64_t num_bytes = (std::max<int64_t>(count, 1) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  auto* bytes = static_cast<std::byte*>(std::aligned_alloc(kAlignment, num_bytes));
  TANDEM_CHECK(bytes != nullptr, "the workspace fits memory");
  std::memset(bytes, 0, num_bytes);
  allocations_.emplace_back(bytes);
  return reinterpret_cast<T*>(bytes);
}

template <typename T, size_t kRank>
void Workspace::Make(kernels::TensorView<T, kRank>& view, const typename kernels::TensorView<T, kRank>::Dims& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  view = kernels::TensorView<T, kRank>(Allocate<T>(count), shape);
}

void Workspace::MakeQuantized(QuantizedRows& rows, int64_t num_rows, int64_t dim) {
  Make(rows.q, {num_rows, dim});
  Make(rows.scale, {num_rows, dim / kernels::kQuantGroup});
}

Workspace::Workspace(const ModelConfig& c, int64_t num_rows_max, int64_t num_positions_max, bool has_bf16_experts,
                     int num_threads)
    : threads(std::make_unique<kernels::ThreadPool>(num_threads)) {
  const int64_t rows = num_rows_max, heads = c.num_attention_heads, hidden = c.hidden_size;
  const int64_t pairs = rows * c.num_experts_per_tok;
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
  Make(index_logits, {std::min<int64_t>(rows, kIndexTileRows), num_positions_max});
  Make(nan_count, {std::min<int64_t>(rows, kIndexTileRows)});
  Make(selected, {rows, c.index_topk});

  Make(router_logits, {rows, c.n_routed_experts});
  Make(expert_ids, {rows, c.num_experts_per_tok});
  Make(expert_weights, {rows, c.num_experts_per_tok});
  Make(row_pairs, {rows, c.num_experts_per_tok});
  Make(pair_rows, {pairs});
  Make(group_offsets, {int64_t{c.n_routed_experts} + 1});
  Make(pair_in, {has_bf16_experts ? pairs : 0, hidden});
  Make(expert_out, {pairs, hidden});
  Make(shared_out, {rows, hidden});

  mlp_elements_max_ = std::max({rows * c.intermediate_size, pairs * c.moe_intermediate_size,
                                rows * c.n_shared_experts * c.moe_intermediate_size});
  mlp_gate_ = Allocate<kernels::Bf16>(mlp_elements_max_);
  mlp_up_ = Allocate<kernels::Bf16>(mlp_elements_max_);
  mlp_product_ = Allocate<kernels::E4m3>(mlp_elements_max_);
  mlp_product_scale_ = Allocate<float>(mlp_elements_max_ / kernels::kQuantGroup);

  const int64_t linear_bytes = kernels::Fp8LinearWorkspaceBytes(
      1, std::max({mlp_elements_max_, rows * 2 * hidden, rows * c.q_lora_rank, rows * heads * c.v_head_dim}));
  linear = absl::MakeSpan(Allocate<std::byte>(linear_bytes), linear_bytes);

  Make(head_x, {rows, hidden});
  Make(head_residual, {rows, hidden});
  Make(mtp_in, {rows, 2 * hidden});
  MakeQuantized(mtp_in_q, rows, 2 * hidden);
}

Workspace::MlpBuffers Workspace::Mlp(int64_t rows, int64_t width) const {
  TANDEM_CHECK(rows * width <= mlp_elements_max_, "the workspace holds the widest MLP");
  return {.gate = {mlp_gate_, {rows, width}},
          .up = {mlp_up_, {rows, width}},
          .product_q = {.q = {mlp_product_, {rows, width}},
                        .scale = {mlp_product_scale_, {rows, width / kernels::kQuantGroup}}}};
}

}  // namespace tandem::model

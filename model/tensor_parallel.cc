#include "model/tensor_parallel.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::model {
namespace {

using kernels::Bf16;
using kernels::kQuantGroup;
using kernels::Matrix;

// Outputs [begin, begin + count), begin a multiple of 128.
LinearWeight Outputs(const LinearWeight& whole, const ValueShare& share) {
  LinearWeight slice;
  if (!whole.is_fp8()) {
    slice.bf16 = whole.bf16.Slice(share.begin, share.count);
    return slice;
  }
  slice.fp8 = {
      .weight = whole.fp8.weight.Slice(share.begin, share.count),
      .scale = whole.fp8.scale.Slice(share.begin / kQuantGroup, (share.count + kQuantGroup - 1) / kQuantGroup)};
  return slice;
}

class Slicer final {
 public:
  Slicer(const ModelConfig& config, int rank, int size)
      : c_(config), rank_(rank), size_(size), hidden_(ColumnsOf(config.hidden_size, kQuantGroup, rank, size)) {
    const int64_t unit = HeadUnit(config);
    heads_ = ColumnsOf(config.num_attention_heads, unit, rank, size);
  }

  LayerWeights Layer(const LayerWeights& whole) const {
    LayerWeights layer = whole;
    AttentionWeights& attention = layer.self_attn;
    const int64_t qk = c_.qk_head_dim();
    attention.q_b_proj = Outputs(attention.q_b_proj, {heads_.begin * qk, heads_.count * qk});
    attention.w_uk = attention.w_uk.Slice(heads_.begin, heads_.count);
    attention.w_uv = attention.w_uv.Slice(heads_.begin, heads_.count);
    attention.o_proj = Outputs(attention.o_proj, hidden_);
    if (layer.mlp.has_value()) SliceMlp(*layer.mlp);
    if (layer.moe.has_value() && layer.moe->shared_experts.has_value()) SliceMlp(*layer.moe->shared_experts);
    return layer;
  }
  Matrix<const Bf16> Head(const Matrix<const Bf16>& whole) const {
    const ValueShare share = ShareOf(whole.shape[0], rank_, size_);
    return whole.Slice(share.begin, share.count);
  }

 private:
  void SliceMlp(MlpWeights& mlp) const {
    const ValueShare width = ColumnsOf(mlp.gate_proj.out_dim(), kQuantGroup, rank_, size_);
    mlp.gate_proj = Outputs(mlp.gate_proj, width);
    mlp.up_proj = Outputs(mlp.up_proj, width);
    mlp.down_proj = Outputs(mlp.down_proj, hidden_);
  }

  const ModelConfig& c_;
  const int rank_;
  const int size_;
  const ValueShare hidden_;
  ValueShare heads_;
};

absl::Status CheckCuts(const ModelConfig& c, int size) {
  const int64_t unit = HeadUnit(c);
  if (unit == 0 || c.num_attention_heads % unit != 0 || c.num_attention_heads / unit < size) {
    return absl::InvalidArgumentError(absl::StrCat("q_b_proj of ", c.num_attention_heads, " heads of ", c.qk_head_dim(),
                                                   " rows cannot be cut for ", size, " ranks: ", unit,
                                                   " heads stay together, since 128 rows share a scale"));
  }
  const auto check = [](absl::string_view tensor, int64_t dim) {
    if (dim % kQuantGroup == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(tensor, " of ", dim, " outputs cannot be cut for several ranks: 128 of them share a scale"));
  };
  RETURN_IF_ERROR(check("o_proj", c.hidden_size));
  RETURN_IF_ERROR(check("gate_proj", c.intermediate_size));
  return check("shared_experts.gate_proj", int64_t{c.n_shared_experts} * c.moe_intermediate_size);
}

}  // namespace

ValueShare ColumnsOf(int64_t dim, int64_t unit, int rank, int size) {
  const ValueShare units = ShareOf(dim / unit, rank, size);
  return {.begin = units.begin * unit, .count = units.count * unit};
}

int64_t HeadUnit(const ModelConfig& config) {
  for (int64_t heads = 1; heads <= kQuantGroup; heads *= 2) {
    if (heads * config.qk_head_dim() % kQuantGroup == 0 && heads * config.v_head_dim % kQuantGroup == 0) return heads;
  }
  return 0;
}

absl::StatusOr<std::shared_ptr<const ModelWeights>> SliceWeights(std::shared_ptr<const ModelWeights> whole,
                                                                 kernels::Backend& backend, int rank, int size) {
  RETURN_IF_ERROR(CheckCuts(whole->config, size));
  struct Part {
    Part(std::shared_ptr<const ModelWeights> all, kernels::Backend& backend)
        : whole(std::move(all)), slice(backend, whole->config) {}
    const std::shared_ptr<const ModelWeights> whole;  // has the bytes
    ModelWeights slice;
  };
  const auto part = std::make_shared<Part>(std::move(whole), backend);
  const ModelWeights& all = *part->whole;
  ModelWeights& slice = part->slice;
  const Slicer slicer(all.config, rank, size);
  slice.embed_tokens = all.embed_tokens;
  slice.lm_head = slicer.Head(all.lm_head);
  slice.norm = all.norm;
  for (const LayerWeights& layer : all.layers) slice.layers.push_back(slicer.Layer(layer));
  if (all.mtp.has_value()) {
    slice.mtp = *all.mtp;
    slice.mtp->head = slicer.Head(all.mtp->head);
    slice.mtp->layer = slicer.Layer(all.mtp->layer);
  }
  return std::shared_ptr<const ModelWeights>(part, &part->slice);
}

ColumnGather::ColumnGather(Communicator& communicator, const ModelConfig& c, int64_t num_rows_max)
    : communicator_(communicator), pieces_(communicator.size()), row_bytes_(communicator.size()) {
  const int64_t dim_max =
      std::max({int64_t{c.hidden_size}, int64_t{c.num_attention_heads} * c.v_head_dim, int64_t{c.intermediate_size},
                int64_t{c.n_shared_experts} * c.moe_intermediate_size});
  const int64_t values = num_rows_max * dim_max;
  send_.resize(values * sizeof(Bf16));
  receive_.resize(values * sizeof(Bf16));
  x_.resize(values);
  own_.resize(num_rows_max * c.hidden_size);
  codes_.resize(values);
  scales_.resize(values / kQuantGroup);
}

absl::Status ColumnGather::Exchange(int64_t rows, const std::vector<int64_t>& row_bytes) {
  std::byte* next = receive_.data();
  for (int peer = 0; peer < size(); ++peer) {
    pieces_[peer] = {next, static_cast<size_t>(rows * row_bytes[peer])};
    next += pieces_[peer].size();
  }
  return communicator_.AllGather({send_.data(), static_cast<size_t>(rows * row_bytes[rank()])}, pieces_);
}

absl::Status ColumnGather::Gather(const Matrix<const Bf16>& mine, int64_t unit, const Matrix<Bf16>& all) {
  const auto [rows, dim] = all.shape;
  const auto bytes_of = [](int64_t count) { return count * static_cast<int64_t>(sizeof(Bf16)); };
  for (int peer = 0; peer < size(); ++peer) row_bytes_[peer] = bytes_of(ColumnsOf(dim, unit, peer, size()).count);
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(send_.data() + row * row_bytes_[rank()], mine.Row(row), row_bytes_[rank()]);
  }
  RETURN_IF_ERROR(Exchange(rows, row_bytes_));
  for (int peer = 0; peer < size(); ++peer) {
    const int64_t begin = ColumnsOf(dim, unit, peer, size()).begin;
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(all.Row(row) + begin, pieces_[peer].data() + row * row_bytes_[peer], row_bytes_[peer]);
    }
  }
  return absl::OkStatus();
}

absl::Status ColumnGather::Gather(const QuantizedRows& mine, int64_t unit, const QuantizedRows& all) {
  const auto [rows, dim] = all.q.shape;
  const auto scale_bytes_of = [](int64_t count) { return count / kQuantGroup * static_cast<int64_t>(sizeof(float)); };
  for (int peer = 0; peer < size(); ++peer) {
    const int64_t count = ColumnsOf(dim, unit, peer, size()).count;
    row_bytes_[peer] = count + scale_bytes_of(count);
  }
  const int64_t own = ColumnsOf(dim, unit, rank(), size()).count;
  for (int64_t row = 0; row < rows && own > 0; ++row) {
    std::byte* to = send_.data() + row * row_bytes_[rank()];
    std::memcpy(to, mine.q.Row(row), own);
    std::memcpy(to + own, mine.scale.Row(row), scale_bytes_of(own));
  }
  RETURN_IF_ERROR(Exchange(rows, row_bytes_));
  for (int peer = 0; peer < size(); ++peer) {
    const ValueShare share = ColumnsOf(dim, unit, peer, size());
    for (int64_t row = 0; row < rows && share.count > 0; ++row) {
      const std::byte* from = pieces_[peer].data() + row * row_bytes_[peer];
      std::memcpy(all.q.Row(row) + share.begin, from, share.count);
      std::memcpy(all.scale.Row(row) + share.begin / kQuantGroup, from + share.count, scale_bytes_of(share.count));
    }
  }
  return absl::OkStatus();
}

absl::Status ColumnGather::GatherRows(const Matrix<Bf16>& rows) {
  const auto [count, dim] = rows.shape;
  const int64_t row_bytes = dim * static_cast<int64_t>(sizeof(Bf16));
  std::byte* next = receive_.data();
  for (int peer = 0; peer < size(); ++peer) {
    pieces_[peer] = {next, static_cast<size_t>((count - peer + size() - 1) / size() * row_bytes)};
    next += pieces_[peer].size();
  }
  std::byte* to = send_.data();
  for (int64_t row = rank(); row < count; row += size()) {
    std::memcpy(to, rows.Row(row), row_bytes);
    to += row_bytes;
  }
  RETURN_IF_ERROR(communicator_.AllGather({send_.data(), pieces_[rank()].size()}, pieces_));
  for (int64_t row = 0; row < count; ++row) {
    std::memcpy(rows.Row(row), pieces_[row % size()].data() + row / size() * row_bytes, row_bytes);
  }
  return absl::OkStatus();
}

}  // namespace tandem::model

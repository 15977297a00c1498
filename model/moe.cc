// Routed experts: rows are sorted by expert, each expert runs its rows, and each row's results are summed in ascending
// expert id, the shared expert last (Numerics 6). A row's bits do not depend on which rows share its experts.
#include "base/status_macros.h"
#include "model/mlp.h"

namespace tandem::model {
namespace {

using kernels::Bf16;
using kernels::Matrix;
using kernels::Vector;

// One projection of all experts. Pair p reads row pair_rows[p] of `in`, or row p where pair_rows is null.
absl::Status RunExpertLinear(const LayerRun& run, const ExpertWeights& weights, const ValueShare& share,
                             const Activation& in, const Vector<const int32_t>& pair_rows,
                             const Vector<const int32_t>& group_offsets, int k_segments, const Matrix<Bf16>& gathered,
                             const Matrix<Bf16>& out) {
  if (weights.is_fp8()) {
    return run.backend.Fp8GroupedLinear({.x = in.quantized.q,
                                         .x_scale = in.quantized.scale,
                                         .x_rows = pair_rows,
                                         .group_offsets = group_offsets,
                                         .weights = absl::MakeConstSpan(weights.fp8).subspan(share.begin, share.count),
                                         .k_segments = k_segments,
                                         .y = out,
                                         .scale_format = in.scale_format,
                                         .workspace = run.workspace.linear});
  }
  // The host reads the offsets: DeepseekModel refuses BF16 experts where it cannot.
  Matrix<const Bf16> pairs = in.x;
  if (!pair_rows.is_null()) {
    RETURN_IF_ERROR(run.backend.GatherRows({.table = in.x, .rows = pair_rows, .out = gathered}));
    pairs = gathered;
  }
  for (int64_t expert = 0; expert < share.count; ++expert) {
    const int64_t begin = group_offsets.data[expert], count = group_offsets.data[expert + 1] - begin;
    RETURN_IF_ERROR(run.backend.Bf16Linear({.x = pairs.Slice(begin, count),
                                            .weight = weights.bf16[share.begin + expert],
                                            .k_segments = k_segments,
                                            .y = out.Slice(begin, count)}));
  }
  return absl::OkStatus();
}

// Rows of bytes, whatever they are, as GatherRows moves them.
template <typename T>
Matrix<Bf16> AsBf16(const Matrix<T>& rows) {
  const int64_t width = rows.shape[1] * static_cast<int64_t>(sizeof(T)) / static_cast<int64_t>(sizeof(Bf16));
  return {reinterpret_cast<Bf16*>(rows.data), {rows.shape[0], width}};
}

// The experts of `share`, of which group_offsets has the pairs.
absl::Status RunExperts(const LayerRun& run, const MoeWeights& weights, const ValueShare& share, const Activation& in,
                        const Vector<const int32_t>& pair_rows, const Vector<const int32_t>& group_offsets,
                        const Matrix<Bf16>& out) {
  const int64_t pairs = pair_rows.shape[0], width = run.config.moe_intermediate_size;
  const Workspace::MlpBuffers buffers = run.workspace.Mlp(pairs, width);
  const bool is_gathered = !weights.gate_proj.is_fp8() || !weights.up_proj.is_fp8();
  const Matrix<Bf16> gathered = is_gathered ? run.workspace.pair_in.Slice(0, pairs) : Matrix<Bf16>();
  Activation pairs_in = in;
  Vector<const int32_t> rows_of_pairs = pair_rows;
  // A device's copy engine brings rows that follow each other, so they are brought together once for both.
  if (!run.backend.is_host() && !is_gathered) {
    const QuantizedRows to = run.workspace.pair_in_q.First(pairs);
    RETURN_IF_ERROR(run.backend.GatherRows({.table = AsBf16(in.quantized.q), .rows = pair_rows, .out = AsBf16(to.q)}));
    RETURN_IF_ERROR(
        run.backend.GatherRows({.table = AsBf16(in.quantized.scale), .rows = pair_rows, .out = AsBf16(to.scale)}));
    pairs_in.quantized = to;
    rows_of_pairs = {};
  }
  RETURN_IF_ERROR(RunExpertLinear(run, weights.gate_proj, share, pairs_in, rows_of_pairs, group_offsets, 1, gathered,
                                  buffers.gate));
  RETURN_IF_ERROR(
      RunExpertLinear(run, weights.up_proj, share, pairs_in, rows_of_pairs, group_offsets, 1, gathered, buffers.up));
  RETURN_IF_ERROR(run.backend.SwiGlu({.gate = buffers.gate, .up = buffers.up, .y = buffers.gate}));
  ASSIGN_OR_RETURN(const Activation product, Quantize(run.backend, run.config, buffers.gate, buffers.product_q));
  return RunExpertLinear(run, weights.down_proj, share, product, {}, group_offsets, kernels::RowParallelSegments(width),
                         {}, out);
}

// Where all ranks have all rows, whose turn it is to send a row to its experts and to add their results up: row i's is
// rank i % size.
template <typename T>
Matrix<T> RowsInTurn(const LayerRun& run, const Matrix<T>& rows) {
  if (run.columns == nullptr || run.experts == nullptr || rows.is_null()) return rows;
  const int64_t rank = run.columns->rank(), size = run.columns->size();
  const int64_t count = (rows.shape[0] - rank + size - 1) / size;
  return {rows.data + rank * rows.strides[0], {count, rows.shape[1]}, {size * rows.strides[0], 1}};
}

// The experts of all rows that other ranks sent here, and the results of this rank's own rows.
absl::Status RunSpreadExperts(const LayerRun& run, const MoeWeights& weights, const Activation& in,
                              const Matrix<const int32_t>& expert_ids, Matrix<const Bf16>& own_results,
                              Matrix<const int32_t>& own_pairs) {
  Workspace& ws = run.workspace;
  ExpertExchange& exchange = *run.experts;
  const bool as_fp8 = weights.gate_proj.is_fp8() || weights.up_proj.is_fp8();
  const bool as_bf16 = !weights.gate_proj.is_fp8() || !weights.up_proj.is_fp8();
  ExpertExchange::Arrived arrived;
  RETURN_IF_ERROR(exchange.Dispatch(in.x, in.quantized, as_fp8, as_bf16, expert_ids, arrived));
  const int64_t pairs = arrived.experts.shape[0];
  const Vector<const int32_t> group_offsets = ws.group_offsets.Slice(0, exchange.experts().count + 1);
  const Vector<int32_t> pair_rows = ws.pair_rows.Slice(0, pairs), order = ws.pair_order.Slice(0, pairs);
  RETURN_IF_ERROR(run.backend.MoeGroupRows({.expert_ids = arrived.experts,
                                            .group_offsets = ws.group_offsets.Slice(0, exchange.experts().count + 1),
                                            .pair_rows = pair_rows,
                                            .row_pairs = {order.data, {pairs, 1}}}));
  // A pair's row among those that arrived, where MoeGroupRows says which pair it is.
  for (int64_t pair = 0; pair < pairs; ++pair) pair_rows.data[pair] = arrived.rows[pair_rows.data[pair]];
  const Activation there{.x = arrived.x, .quantized = arrived.quantized, .scale_format = in.scale_format};
  const Matrix<Bf16> grouped = ws.expert_out.Slice(0, pairs), in_order = ws.arrived_out.Slice(0, pairs);
  RETURN_IF_ERROR(RunExperts(run, weights, exchange.experts(), there, pair_rows, group_offsets, grouped));
  RETURN_IF_ERROR(run.backend.GatherRows({.table = grouped, .rows = order, .out = in_order}));
  return exchange.Return(in_order, own_results, own_pairs);
}

}  // namespace

absl::Status RunMoe(const LayerRun& run, const MoeWeights& weights, const Activation& in, const Matrix<Bf16>& out) {
  const ModelConfig& c = run.config;
  Workspace& ws = run.workspace;
  const int64_t rows = in.x.shape[0], pairs = rows * c.num_experts_per_tok;
  const Matrix<float> logits = ws.router_logits.Slice(0, rows);
  const Matrix<int32_t> expert_ids = ws.expert_ids.Slice(0, rows);
  const Matrix<float> expert_weights = ws.expert_weights.Slice(0, rows);
  Matrix<const Bf16> shared_out;
  if (weights.shared_experts.has_value()) {
    const Matrix<Bf16> shared = ws.shared_out.Slice(0, rows);
    RETURN_IF_ERROR(run.backend.BeginBeside());
    RETURN_IF_ERROR(RunMlp(run, *weights.shared_experts, in, ws.SharedMlp(rows), shared));
    RETURN_IF_ERROR(run.backend.EndBeside());
    shared_out = shared;
  }

  RETURN_IF_ERROR(run.backend.Bf16LinearF32({.x = in.x, .weight = weights.gate, .y = logits}));
  RETURN_IF_ERROR(run.backend.MoeRouter({.logits = logits,
                                         .bias = weights.e_score_correction_bias,
                                         .n_group = c.n_group,
                                         .topk_group = c.topk_group,
                                         .norm_topk_prob = c.norm_topk_prob,
                                         .routed_scaling_factor = c.routed_scaling_factor,
                                         .expert_ids = expert_ids,
                                         .weights = expert_weights}));
  RETURN_IF_ERROR(ShowStage(run, "router_ids", expert_ids));
  RETURN_IF_ERROR(ShowStage(run, "router_weights", expert_weights));

  // Results of pairs of a row and an expert, and where those of a row's experts, in ascending order, stand.
  Matrix<const Bf16> expert_out;
  Matrix<const int32_t> row_pairs;
  if (run.experts != nullptr) {
    const Activation in_turn{
        .x = RowsInTurn(run, in.x),
        .quantized = {.q = RowsInTurn(run, in.quantized.q), .scale = RowsInTurn(run, in.quantized.scale)},
        .scale_format = in.scale_format};
    const Matrix<const int32_t> chosen = expert_ids;
    RETURN_IF_ERROR(RunSpreadExperts(run, weights, in_turn, RowsInTurn(run, chosen), expert_out, row_pairs));
  } else {
    const Vector<int32_t> pair_rows = ws.pair_rows.Slice(0, pairs);
    RETURN_IF_ERROR(run.backend.MoeGroupRows({.expert_ids = expert_ids,
                                              .group_offsets = ws.group_offsets,
                                              .pair_rows = pair_rows,
                                              .row_pairs = ws.row_pairs.Slice(0, rows)}));
    const ValueShare all{.begin = 0, .count = c.n_routed_experts};
    RETURN_IF_ERROR(RunExperts(run, weights, all, in, pair_rows, ws.group_offsets, ws.expert_out.Slice(0, pairs)));
    expert_out = ws.expert_out.Slice(0, pairs);
    row_pairs = ws.row_pairs.Slice(0, rows);
  }
  if (weights.shared_experts.has_value()) RETURN_IF_ERROR(run.backend.JoinBeside());
  RETURN_IF_ERROR(run.backend.MoeCombine({.expert_out = expert_out,
                                          .row_pairs = row_pairs,
                                          .weights = RowsInTurn(run, expert_weights),
                                          .shared_out = RowsInTurn(run, shared_out),
                                          .y = RowsInTurn(run, out)}));
  if (run.columns == nullptr || run.experts == nullptr) return absl::OkStatus();
  return run.columns->GatherRows(out);
}

}  // namespace tandem::model

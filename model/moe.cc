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
absl::Status RunExpertLinear(const LayerRun& run, const ExpertWeights& weights, const Activation& in,
                             const Vector<const int32_t>& pair_rows, const Vector<const int32_t>& group_offsets,
                             int k_segments, const Matrix<Bf16>& gathered, const Matrix<Bf16>& out) {
  if (weights.is_fp8()) {
    return run.backend.Fp8GroupedLinear({.x = in.quantized.q,
                                         .x_scale = in.quantized.scale,
                                         .x_rows = pair_rows,
                                         .group_offsets = group_offsets,
                                         .weights = weights.fp8,
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
  for (size_t expert = 0; expert < weights.bf16.size(); ++expert) {
    const int64_t begin = group_offsets.data[expert], count = group_offsets.data[expert + 1] - begin;
    RETURN_IF_ERROR(run.backend.Bf16Linear({.x = pairs.Slice(begin, count),
                                            .weight = weights.bf16[expert],
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

absl::Status RunExperts(const LayerRun& run, const MoeWeights& weights, const Activation& in,
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
  RETURN_IF_ERROR(
      RunExpertLinear(run, weights.gate_proj, pairs_in, rows_of_pairs, group_offsets, 1, gathered, buffers.gate));
  RETURN_IF_ERROR(
      RunExpertLinear(run, weights.up_proj, pairs_in, rows_of_pairs, group_offsets, 1, gathered, buffers.up));
  RETURN_IF_ERROR(run.backend.SwiGlu({.gate = buffers.gate, .up = buffers.up, .y = buffers.gate}));
  ASSIGN_OR_RETURN(const Activation product, Quantize(run.backend, run.config, buffers.gate, buffers.product_q));
  return RunExpertLinear(run, weights.down_proj, product, {}, group_offsets, kernels::RowParallelSegments(width), {},
                         out);
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

  const Vector<int32_t> pair_rows = ws.pair_rows.Slice(0, pairs);
  const Matrix<int32_t> row_pairs = ws.row_pairs.Slice(0, rows);
  RETURN_IF_ERROR(run.backend.MoeGroupRows(
      {.expert_ids = expert_ids, .group_offsets = ws.group_offsets, .pair_rows = pair_rows, .row_pairs = row_pairs}));
  const Matrix<Bf16> expert_out = ws.expert_out.Slice(0, pairs);
  RETURN_IF_ERROR(RunExperts(run, weights, in, pair_rows, ws.group_offsets, expert_out));
  if (weights.shared_experts.has_value()) RETURN_IF_ERROR(run.backend.JoinBeside());
  return run.backend.MoeCombine({.expert_out = expert_out,
                                 .row_pairs = row_pairs,
                                 .weights = expert_weights,
                                 .shared_out = shared_out,
                                 .y = out});
}

}  // namespace tandem::model

#include "model/attention.h"

#include "base/status_macros.h"
#include "kvcache/kv_layout.h"
#include "model/indexer.h"
#include "model/output_linear.h"

namespace tandem::model {
namespace {

using kernels::Bf16;
using kernels::Cube;
using kernels::Matrix;
using kvcache::kLatentDim;
using kvcache::kRopeDim;

absl::Status RotateMla(const LayerRun& run, const Cube<Bf16>& rope_part) {
  return run.backend.Rope({.layout = kernels::RopeLayout::kInterleaved,
                           .x = rope_part,
                           .positions = run.plan.positions(),
                           .table = run.rope_table,
                           .y = rope_part});
}

absl::Status WriteLatentRecords(const LayerRun& run, const AttentionWeights& weights, const Activation& normed) {
  const int64_t rows = run.num_rows();
  const Matrix<Bf16> kv_a = run.workspace.kv_a.Slice(0, rows);
  const Matrix<Bf16> latent = run.workspace.latent.Slice(0, rows);
  const Matrix<Bf16> rope_key = kv_a.Columns(kLatentDim, kRopeDim);
  RETURN_IF_ERROR(RunLinear(run.backend, run.workspace, weights.kv_a_proj_with_mqa, normed, kv_a));
  RETURN_IF_ERROR(run.backend.RmsNorm({.x = kv_a.Columns(0, kLatentDim),
                                       .weight = weights.kv_a_layernorm,
                                       .eps = run.config.rms_norm_eps,
                                       .y = latent}));
  RETURN_IF_ERROR(RotateMla(run, rope_key.SplitLast(kRopeDim)));
  RETURN_IF_ERROR(ShowStage(run, "c", latent));
  RETURN_IF_ERROR(ShowStage(run, "k_rope", rope_key));
  return run.backend.WriteLatent({.latent = latent,
                                  .rope_key = rope_key,
                                  .scale_format = run.config.scale_format,
                                  .rows = run.buffers ? run.buffers->WrittenRows() : run.plan.AllRows(),
                                  .kv_cache_dtype = run.kv_cache_dtype,
                                  .latent_pages = run.latent_pages});
}

// Of the rows' selected positions; out: [num_rows, heads, 512].
absl::Status Attend(const LayerRun& run, const Cube<Bf16>& q_latent, const Cube<Bf16>& q_rope, const Cube<Bf16>& out) {
  const kernels::SparseMlaArgs args{.q_latent = q_latent,
                                    .q_rope = q_rope,
                                    .softmax_scale = run.softmax_scale,
                                    .indices = run.workspace.selected.Slice(0, run.num_rows()),
                                    .rows = run.plan.AllRows(),
                                    .kv_cache_dtype = run.kv_cache_dtype,
                                    .latent_pages = run.latent_pages,
                                    .out = out};
  if (run.buffers == nullptr) return run.backend.SparseMla(args);
  return run.buffers->ForEachWindow(run.layer, args.indices, [&](const DeviceBuffers::Window& window) {
    kernels::SparseMlaArgs of_window = args;
    of_window.q_latent = q_latent.Slice(window.begin, window.count);
    of_window.q_rope = q_rope.Slice(window.begin, window.count);
    of_window.indices = window.slots;
    of_window.rows = window.rows;
    of_window.out = out.Slice(window.begin, window.count);
    return run.backend.SparseMla(of_window);
  });
}

}  // namespace

absl::Status RunAttention(const LayerRun& run, const AttentionWeights& weights, const Matrix<const Bf16>& normed,
                          absl::FunctionRef<absl::Status()> records_written, const Matrix<Bf16>& out) {
  const ModelConfig& c = run.config;
  Workspace& ws = run.workspace;
  const int64_t rows = run.num_rows();
  const bool chooses = !run.shares_selection;
  ASSIGN_OR_RETURN(const Activation in, Quantize(run.backend, c, normed, ws.normed_q));

  // What is cached of the rows does not depend on their queries.
  RETURN_IF_ERROR(run.backend.BeginBeside());
  RETURN_IF_ERROR(WriteLatentRecords(run, weights, in));
  if (chooses) RETURN_IF_ERROR(ProjectIndexKeys(run, weights.indexer, in));
  RETURN_IF_ERROR(run.backend.EndBeside());

  const Matrix<Bf16> q_a = ws.q_a.Slice(0, rows);
  RETURN_IF_ERROR(RunLinear(run.backend, run.workspace, weights.q_a_proj, in, q_a));
  RETURN_IF_ERROR(run.backend.RmsNorm({.x = q_a, .weight = weights.q_a_layernorm, .eps = c.rms_norm_eps, .y = q_a}));
  ASSIGN_OR_RETURN(const Activation q_latent, Quantize(run.backend, c, q_a, ws.q_a_q));
  RETURN_IF_ERROR(ShowStage(run, "qr", q_a));
  if (chooses) RETURN_IF_ERROR(ProjectIndexQueries(run, weights.indexer, q_latent));

  const int64_t heads = weights.w_uk.shape[0];  // this rank's
  const Matrix<Bf16> q_rows(ws.q.data, {rows, heads * c.qk_head_dim()});
  RETURN_IF_ERROR(RunLinear(run.backend, run.workspace, weights.q_b_proj, q_latent, q_rows));
  const Cube<Bf16> q = q_rows.SplitLast(c.qk_head_dim());
  const Cube<Bf16> q_rope = q.Columns(c.qk_nope_head_dim, kRopeDim);
  RETURN_IF_ERROR(RotateMla(run, q_rope));
  RETURN_IF_ERROR(ShowStage(run, "q", q));
  const Cube<Bf16> absorbed(ws.q_latent.data, {rows, heads, kLatentDim});
  RETURN_IF_ERROR(run.backend.MlaAbsorbQuery(
      {.q_nope = q.Columns(0, c.qk_nope_head_dim), .w_uk = weights.w_uk, .q_latent = absorbed}));

  RETURN_IF_ERROR(run.backend.JoinBeside());
  if (chooses) RETURN_IF_ERROR(FinishIndexWeights(run));
  RETURN_IF_ERROR(records_written());
  if (chooses) RETURN_IF_ERROR(SelectPositions(run));

  const Cube<Bf16> latent_out(ws.latent_out.data, {rows, heads, kLatentDim});
  RETURN_IF_ERROR(Attend(run, absorbed, q_rope, latent_out));
  const Cube<Bf16> head_out(ws.head_out.data, {rows, heads, c.v_head_dim});
  RETURN_IF_ERROR(run.backend.MlaUnabsorbOutput({.latent_out = latent_out, .w_uv = weights.w_uv, .out = head_out}));

  // Heads side by side: h * v_head_dim + d.
  const Matrix<const Bf16> concatenated(head_out.data, {rows, heads * c.v_head_dim});
  RETURN_IF_ERROR(RunOutputLinear(run, weights.o_proj, concatenated, HeadUnit(c) * c.v_head_dim, ws.head_out_q, out));
  return ShowStage(run, "attention", out);
}

}  // namespace tandem::model

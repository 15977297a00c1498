#include "model/attention.h"

#include "base/status_macros.h"
#include "kvcache/kv_layout.h"
#include "model/indexer.h"

namespace tandem::model {
namespace {

using kernels::Bf16;
using kernels::Cube;
using kernels::Matrix;
using kvcache::kLatentDim;
using kvcache::kRopeDim;

absl::Status RotateMla(const LayerRun& run, const Cube<Bf16>& rope_part) {
  return kernels::Rope({.layout = kernels::RopeLayout::kInterleaved,
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
  RETURN_IF_ERROR(RunLinear(run.workspace, weights.kv_a_proj_with_mqa, normed, kv_a));
  RETURN_IF_ERROR(kernels::RmsNorm({.x = kv_a.Columns(0, kLatentDim),
                                    .weight = weights.kv_a_layernorm,
                                    .eps = run.config.rms_norm_eps,
                                    .y = latent}));
  RETURN_IF_ERROR(RotateMla(run, rope_key.SplitLast(kRopeDim)));
  ShowStage(run.tap, run.layer, "c", latent);
  ShowStage(run.tap, run.layer, "k_rope", rope_key);
  return kernels::WriteLatent({.latent = latent,
                               .rope_key = rope_key,
                               .scale_format = run.config.scale_format,
                               .rows = run.plan.AllRows(),
                               .kv_cache_dtype = run.kv_cache_dtype,
                               .latent_pages = run.latent_pages});
}

}  // namespace

absl::StatusOr<int64_t> RunAttention(const LayerRun& run, const AttentionWeights& weights,
                                     const Matrix<const Bf16>& normed, absl::FunctionRef<void()> records_written,
                                     const Matrix<Bf16>& out) {
  const ModelConfig& c = run.config;
  Workspace& ws = run.workspace;
  const int64_t rows = run.num_rows();
  ASSIGN_OR_RETURN(const Activation in, Quantize(c, normed, ws.normed_q));

  const Matrix<Bf16> q_a = ws.q_a.Slice(0, rows);
  RETURN_IF_ERROR(RunLinear(run.workspace, weights.q_a_proj, in, q_a));
  RETURN_IF_ERROR(kernels::RmsNorm({.x = q_a, .weight = weights.q_a_layernorm, .eps = c.rms_norm_eps, .y = q_a}));
  ASSIGN_OR_RETURN(const Activation q_latent, Quantize(c, q_a, ws.q_a_q));
  ShowStage(run.tap, run.layer, "qr", q_a);

  RETURN_IF_ERROR(WriteLatentRecords(run, weights, in));
  RETURN_IF_ERROR(ProjectIndex(run, weights.indexer, in, q_latent));
  records_written();

  const Matrix<Bf16> q_rows = ws.q.Slice(0, rows);
  RETURN_IF_ERROR(RunLinear(run.workspace, weights.q_b_proj, q_latent, q_rows));
  const Cube<Bf16> q = q_rows.SplitLast(c.qk_head_dim());
  const Cube<Bf16> q_rope = q.Columns(c.qk_nope_head_dim, kRopeDim);
  RETURN_IF_ERROR(RotateMla(run, q_rope));
  ShowStage(run.tap, run.layer, "q", q);

  ASSIGN_OR_RETURN(const int64_t num_nan, SelectPositions(run));

  const Cube<Bf16> absorbed = ws.q_latent.Slice(0, rows);
  RETURN_IF_ERROR(kernels::MlaAbsorbQuery({.q_nope = q.Columns(0, c.qk_nope_head_dim),
                                           .w_uk = weights.w_uk,
                                           .q_latent = absorbed,
                                           .threads = ws.threads.get()}));
  const Cube<Bf16> latent_out = ws.latent_out.Slice(0, rows);
  RETURN_IF_ERROR(kernels::SparseMla({.q_latent = absorbed,
                                      .q_rope = q_rope,
                                      .softmax_scale = run.softmax_scale,
                                      .indices = ws.selected.Slice(0, rows),
                                      .rows = run.plan.AllRows(),
                                      .kv_cache_dtype = run.kv_cache_dtype,
                                      .latent_pages = run.latent_pages,
                                      .out = latent_out,
                                      .threads = ws.threads.get()}));
  const Cube<Bf16> head_out = ws.head_out.Slice(0, rows);
  RETURN_IF_ERROR(kernels::MlaUnabsorbOutput(
      {.latent_out = latent_out, .w_uv = weights.w_uv, .out = head_out, .threads = ws.threads.get()}));

  // Heads side by side: h * v_head_dim + d.
  const Matrix<const Bf16> concatenated(head_out.data, {rows, int64_t{c.num_attention_heads} * c.v_head_dim});
  ASSIGN_OR_RETURN(const Activation attended, Quantize(c, concatenated, ws.head_out_q));
  RETURN_IF_ERROR(RunRowParallelLinear(run.workspace, weights.o_proj, attended, out));
  ShowStage(run.tap, run.layer, "attention", out);
  return num_nan;
}

}  // namespace tandem::model

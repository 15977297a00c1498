#include "model/indexer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvcache/kv_layout.h"

namespace tandem::model {
namespace {

using kernels::Bf16;
using kernels::Matrix;
using kvcache::kIndexDim;
using kvcache::kRopeDim;

// Rope on the first 64 dims of each head, then the Hadamard transform over all 128, in place.
absl::Status RotateAndFlatten(const LayerRun& run, const Matrix<Bf16>& heads) {
  const kernels::Cube<Bf16> split = heads.SplitLast(kIndexDim);
  const kernels::Cube<Bf16> rope_part = split.Columns(0, kRopeDim);
  RETURN_IF_ERROR(run.backend.Rope({.layout = run.config.indexer_rope_interleave ? kernels::RopeLayout::kInterleaved
                                                                                 : kernels::RopeLayout::kHalfSplit,
                                    .x = rope_part,
                                    .positions = run.plan.positions(),
                                    .table = run.rope_table,
                                    .y = rope_part}));
  return run.backend.Hadamard128({.x = split, .y = split});
}

// For the tap only: logits of all rows, -inf beyond a row's context, NaN for rows that need none.
class LogitsCollector final {
 public:
  explicit LogitsCollector(const LayerRun& run) : run_(run) {
    if (!run.tap) return;
    columns_ = run.plan.ContextMax(0, run.num_rows());
    values_.assign(run.num_rows() * columns_, std::numeric_limits<float>::quiet_NaN());
  }
  absl::Status Add(int row_begin, const Matrix<float>& logits) {
    if (!run_.tap) return absl::OkStatus();
    std::vector<float> storage;
    const Matrix<const float> view = logits;
    ASSIGN_OR_RETURN(const Matrix<const float> on_host, DownloadView(run_.backend, view, storage));
    for (int64_t i = 0; i < on_host.shape[0]; ++i) {
      const int32_t context = run_.plan.ContextOf(static_cast<int>(row_begin + i));
      if (context <= run_.workspace.selected.shape[1]) continue;
      float* out = &values_[(row_begin + i) * columns_];
      std::fill_n(std::copy_n(on_host.Row(i), context, out), columns_ - context,
                  -std::numeric_limits<float>::infinity());
    }
    return absl::OkStatus();
  }
  void Show() const {
    if (!run_.tap) return;
    ShowHostTensor(run_.tap, absl::StrCat("L", run_.layer, ".index_logits"),
                   Matrix<const float>(values_.data(), {run_.num_rows(), columns_}));
  }

 private:
  const LayerRun& run_;
  int64_t columns_ = 0;
  std::vector<float> values_;
};

}  // namespace

absl::Status ProjectIndexKeys(const LayerRun& run, const IndexerWeights& weights, const Activation& normed) {
  Workspace& ws = run.workspace;
  const int64_t rows = run.num_rows();
  const Matrix<Bf16> keys = ws.index_k.Slice(0, rows);
  RETURN_IF_ERROR(RunLinear(run.backend, run.workspace, weights.wk, normed, keys));
  RETURN_IF_ERROR(run.backend.LayerNorm({.x = keys,
                                         .weight = weights.k_norm_weight,
                                         .bias = weights.k_norm_bias,
                                         .eps = run.config.rms_norm_eps,
                                         .y = keys}));
  RETURN_IF_ERROR(RotateAndFlatten(run, keys));
  ASSIGN_OR_RETURN(const Activation key, Quantize(run.backend, run.config, keys, ws.index_k_q));
  RETURN_IF_ERROR(run.backend.WriteIndexKey({.key = key.quantized.q,
                                             .scale = key.quantized.scale,
                                             .rows = run.plan.AllRows(),
                                             .index_pages = run.index_pages}));
  RETURN_IF_ERROR(ShowStage(run, "index_k", key.quantized.q));
  RETURN_IF_ERROR(ShowStage(run, "index_k_scale", key.quantized.scale));
  return run.backend.Bf16LinearF32(
      {.x = normed.x, .weight = weights.weights_proj, .y = ws.index_weights.Slice(0, rows)});
}

absl::Status ProjectIndexQueries(const LayerRun& run, const IndexerWeights& weights, const Activation& q_latent) {
  Workspace& ws = run.workspace;
  const Matrix<Bf16> queries = ws.index_q.Slice(0, run.num_rows());
  RETURN_IF_ERROR(RunLinear(run.backend, run.workspace, weights.wq_b, q_latent, queries));
  RETURN_IF_ERROR(RotateAndFlatten(run, queries));
  ASSIGN_OR_RETURN(const Activation query, Quantize(run.backend, run.config, queries, ws.index_q_q));
  RETURN_IF_ERROR(ShowStage(run, "index_q", query.quantized.q.SplitLast(kIndexDim)));
  return ShowStage(run, "index_q_scale", query.quantized.scale);
}

absl::Status FinishIndexWeights(const LayerRun& run) {
  const int64_t rows = run.num_rows();
  const Matrix<float> weights = run.workspace.index_weights.Slice(0, rows);
  RETURN_IF_ERROR(run.backend.IndexWeights({.projected = weights,
                                            .q_scale = run.workspace.index_q_q.scale.Slice(0, rows),
                                            .head_dim = kIndexDim,
                                            .weights = weights}));
  return ShowStage(run, "index_w", weights);
}

absl::Status SelectPositions(const LayerRun& run) {
  Workspace& ws = run.workspace;
  LogitsCollector collector(run);
  const int tile_rows = static_cast<int>(ws.index_logits.shape[0]);
  const int64_t dense_context_max = ws.selected.shape[1];
  for (int begin = 0; begin < run.num_rows(); begin += tile_rows) {
    const int count = std::min(tile_rows, run.num_rows() - begin);
    const kernels::PagedRows rows = run.plan.Rows(begin, count);
    const int32_t context_max = run.plan.ContextMax(begin, count);
    const Matrix<float> logits = ws.index_logits.Slice(0, count).Columns(0, context_max);
    if (context_max > dense_context_max) {
      RETURN_IF_ERROR(run.backend.IndexLogits({.q = ws.index_q_q.q.Slice(begin, count).SplitLast(kIndexDim),
                                               .weights = ws.index_weights.Slice(begin, count),
                                               .rows = rows,
                                               .index_pages = run.index_pages,
                                               .index_topk = dense_context_max,
                                               .logits = logits}));
      RETURN_IF_ERROR(collector.Add(begin, logits));
    }
    RETURN_IF_ERROR(run.backend.TopK({.logits = logits,
                                      .context_length = rows.context_length,
                                      .indices = ws.selected.Slice(begin, count),
                                      .nan_count = run.nan_count.Slice(begin, count),
                                      .k = run.config.index_topk}));
  }
  collector.Show();
  return ShowStage(run, "selected", ws.selected.Slice(0, run.num_rows()));
}

}  // namespace tandem::model

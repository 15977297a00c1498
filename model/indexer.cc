#include "model/indexer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

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
  RETURN_IF_ERROR(kernels::Rope({.layout = run.config.indexer_rope_interleave ? kernels::RopeLayout::kInterleaved
                                                                              : kernels::RopeLayout::kHalfSplit,
                                 .x = rope_part,
                                 .positions = run.plan.positions(),
                                 .table = run.rope_table,
                                 .y = rope_part}));
  return kernels::Hadamard128({.x = split, .y = split});
}

// For the tap only: logits of all rows, -inf beyond a row's context, NaN for rows that need none.
class LogitsCollector final {
 public:
  explicit LogitsCollector(const LayerRun& run) : run_(run) {
    if (!run.tap) return;
    columns_ = run.plan.ContextMax(0, run.num_rows());
    values_.assign(run.num_rows() * columns_, std::numeric_limits<float>::quiet_NaN());
  }
  void Add(int row_begin, const kernels::PagedRows& rows, const Matrix<float>& logits) {
    if (!run_.tap) return;
    for (int64_t i = 0; i < rows.context_length.shape[0]; ++i) {
      const int32_t context = rows.context_length.data[i];
      if (context <= run_.config.index_topk) continue;
      float* out = &values_[(row_begin + i) * columns_];
      std::fill_n(std::copy_n(logits.Row(i), context, out), columns_ - context,
                  -std::numeric_limits<float>::infinity());
    }
  }
  void Show() const {
    if (run_.tap) {
      ShowStage(run_.tap, run_.layer, "index_logits", Matrix<const float>(values_.data(), {run_.num_rows(), columns_}));
    }
  }

 private:
  const LayerRun& run_;
  int64_t columns_ = 0;
  std::vector<float> values_;
};

}  // namespace

absl::Status ProjectIndex(const LayerRun& run, const IndexerWeights& weights, const Activation& normed,
                          const Activation& q_latent) {
  Workspace& ws = run.workspace;
  const int64_t rows = run.num_rows();
  const Matrix<Bf16> queries = ws.index_q.Slice(0, rows);
  RETURN_IF_ERROR(RunLinear(run.workspace, weights.wq_b, q_latent, queries));
  RETURN_IF_ERROR(RotateAndFlatten(run, queries));
  ASSIGN_OR_RETURN(const Activation query, Quantize(run.config, queries, ws.index_q_q));

  const Matrix<Bf16> keys = ws.index_k.Slice(0, rows);
  RETURN_IF_ERROR(RunLinear(run.workspace, weights.wk, normed, keys));
  RETURN_IF_ERROR(kernels::LayerNorm({.x = keys,
                                      .weight = weights.k_norm_weight,
                                      .bias = weights.k_norm_bias,
                                      .eps = run.config.rms_norm_eps,
                                      .y = keys}));
  RETURN_IF_ERROR(RotateAndFlatten(run, keys));
  ASSIGN_OR_RETURN(const Activation key, Quantize(run.config, keys, ws.index_k_q));
  RETURN_IF_ERROR(kernels::WriteIndexKey({.key = key.quantized.q,
                                          .scale = key.quantized.scale,
                                          .rows = run.plan.AllRows(),
                                          .index_pages = run.index_pages}));

  const Matrix<float> head_weights = ws.index_weights.Slice(0, rows);
  RETURN_IF_ERROR(kernels::Bf16LinearF32(
      {.x = normed.x, .weight = weights.weights_proj, .y = head_weights, .threads = ws.threads.get()}));
  RETURN_IF_ERROR(kernels::IndexWeights(
      {.projected = head_weights, .q_scale = query.quantized.scale, .head_dim = kIndexDim, .weights = head_weights}));
  ShowStage(run.tap, run.layer, "index_q", query.quantized.q.SplitLast(kIndexDim));
  ShowStage(run.tap, run.layer, "index_q_scale", query.quantized.scale);
  ShowStage(run.tap, run.layer, "index_k", key.quantized.q);
  ShowStage(run.tap, run.layer, "index_k_scale", key.quantized.scale);
  ShowStage(run.tap, run.layer, "index_w", head_weights);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SelectPositions(const LayerRun& run) {
  Workspace& ws = run.workspace;
  LogitsCollector collector(run);
  int64_t num_nan = 0;
  for (int begin = 0; begin < run.num_rows(); begin += Workspace::kIndexTileRows) {
    const int count = std::min(Workspace::kIndexTileRows, run.num_rows() - begin);
    const kernels::PagedRows rows = run.plan.Rows(begin, count);
    const Matrix<float> logits = ws.index_logits.Slice(0, count);
    if (run.plan.ContextMax(begin, count) > run.config.index_topk) {
      RETURN_IF_ERROR(kernels::IndexLogits({.q = ws.index_q_q.q.Slice(begin, count).SplitLast(kIndexDim),
                                            .weights = ws.index_weights.Slice(begin, count),
                                            .rows = rows,
                                            .index_pages = run.index_pages,
                                            .index_topk = run.config.index_topk,
                                            .logits = logits,
                                            .threads = ws.threads.get()}));
      collector.Add(begin, rows, logits);
    }
    const kernels::Vector<int32_t> nan_count = ws.nan_count.Slice(0, count);
    RETURN_IF_ERROR(kernels::TopK({.logits = logits,
                                   .context_length = rows.context_length,
                                   .indices = ws.selected.Slice(begin, count),
                                   .nan_count = nan_count,
                                   .threads = ws.threads.get()}));
    for (int i = 0; i < count; ++i) num_nan += nan_count.data[i];
  }
  collector.Show();
  ShowStage(run.tap, run.layer, "selected", ws.selected.Slice(0, run.num_rows()));
  return num_nan;
}

}  // namespace tandem::model

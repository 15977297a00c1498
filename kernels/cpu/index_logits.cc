// IndexLogits: the lightning indexer's scores over the paged index keys. Rows of one sequence that follow each other
// share each page's decoding; runs of pages are spread over threads. The arithmetic is in indexer_level.cc.
// Tested by index_logits_test.cc, levels_test.cc.
#include <algorithm>

#include "base/status_macros.h"
#include "kernels/cpu/levels.h"
#include "kernels/flush_subnormals.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kernels/paged_rows.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kHeadsMax = 128;
constexpr int64_t kTaskScores = 1 << 14;  // (row, head, key) triples that are worth a thread

// Rows [begin, end) of one sequence.
void ScoreRows(const IndexLogitsArgs& args, int64_t begin, int64_t end) {
  const int64_t num_heads = args.q.shape[1];
  const int32_t* contexts = args.rows.context_length.data;
  const cpu::IndexLogitsTask rows{
      .q = reinterpret_cast<const uint8_t*>(args.q.Row(begin, 0)),
      .q_row_stride = args.q.strides[0],
      .q_head_stride = args.q.strides[1],
      .weights = args.weights.Row(begin),
      .weights_stride = args.weights.strides[0],
      .num_rows = end - begin,
      .num_heads = static_cast<int>(num_heads),
      .contexts = contexts + begin,
      .page_table = args.rows.page_tables.Row(args.rows.sequence.data[begin]),
      .index_pages = args.index_pages.data,
      .page_stride = args.index_pages.strides[0],
      .logits = args.logits.Row(begin),
      .logits_stride = args.logits.strides[0],
  };
  const int64_t num_pages = kvcache::PagesForTokens(*std::max_element(contexts + begin, contexts + end));
  const int64_t scores_of_page = (end - begin) * num_heads * kvcache::kPageTokens;
  const int64_t pages = std::max<int64_t>(1, kTaskScores / scores_of_page);
  const cpu::LevelOps& ops = cpu::ActiveLevelOps();
  RunTasks(args.threads, (num_pages + pages - 1) / pages, [&](int64_t task) {
    const FlushSubnormals flush;
    ops.index_logits(rows, task * pages, std::min(num_pages, (task + 1) * pages));
  });
}

}  // namespace

absl::Status IndexLogits(const IndexLogitsArgs& args) {
  const int64_t num_rows = args.q.shape[0];
  const int64_t num_heads = args.q.shape[1];
  const int64_t num_pages = args.index_pages.shape[0];
  OpBorder border("IndexLogits");
  border.Require(num_heads >= 1 && num_heads <= kHeadsMax, "num_heads", num_heads, "in [1, 128]")
      .Shape("q", args.q, {num_rows, num_heads, kvcache::kIndexDim})
      .Shape("weights", args.weights, {num_rows, num_heads})
      .Shape("index_pages", args.index_pages, {num_pages, kvcache::kIndexPageBytes})
      .Shape("logits", args.logits, {num_rows, args.logits.shape[1]});
  CheckPagedRows(border, args.rows, num_rows, num_pages);
  RETURN_IF_ERROR(border.status());
  const int32_t* contexts = args.rows.context_length.data;
  const auto is_skipped = [&](int64_t row) { return contexts[row] <= args.index_topk; };
  for (int64_t row = 0; row < num_rows; ++row) {
    border.Require(is_skipped(row) || contexts[row] <= args.logits.shape[1], "logits' width", args.logits.shape[1],
                   "at least the longest context");
  }
  RETURN_IF_ERROR(border.status());
  for (int64_t begin = 0; begin < num_rows;) {
    if (is_skipped(begin)) {
      ++begin;
      continue;
    }
    int64_t end = begin + 1;
    while (end < num_rows && !is_skipped(end) && args.rows.sequence.data[end] == args.rows.sequence.data[begin]) ++end;
    ScoreRows(args, begin, end);
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels

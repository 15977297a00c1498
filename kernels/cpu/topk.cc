// TopK: rows are spread over threads; the search is in topk_level.cc. Comparisons only, so the answer is exact.
// Tested by topk_test.cc, levels_test.cc.
#include <algorithm>
#include <limits>

#include "base/status_macros.h"
#include "kernels/cpu/levels.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"

namespace tandem::kernels {

absl::Status TopK(const TopKArgs& args) {
  const int64_t num_rows = args.indices.shape[0], width = args.indices.shape[1];
  const int64_t k = args.k == 0 ? width : args.k;
  OpBorder border("TopK");
  border.Require(width >= 1, "indices' width", width, "at least 1")
      .Require(k >= 1 && k <= width, "k", k, "1 to indices' width")
      .Shape("logits", args.logits, {num_rows, args.logits.shape[1]})
      .Shape("context_length", args.context_length, {num_rows})
      .Shape("indices", args.indices, {num_rows, width})
      .Shape("nan_count", args.nan_count, {num_rows})
      .Ids("context_length", args.context_length, 1, std::numeric_limits<int32_t>::max());
  RETURN_IF_ERROR(border.status());
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t context = args.context_length.data[row];
    border.Require(context <= width || context <= args.logits.shape[1], "logits' width", args.logits.shape[1],
                   "at least the longest context above indices' width");
  }
  RETURN_IF_ERROR(border.status());
  const cpu::LevelOps& ops = cpu::ActiveLevelOps();
  RunTasks(args.threads, num_rows, [&](int64_t row) {
    const int64_t context = args.context_length.data[row];
    int32_t* indices = args.indices.Row(row);
    if (context > width) {
      args.nan_count.data[row] = ops.top_k(args.logits.Row(row), context, k, indices);
      std::fill(indices + k, indices + width, -1);
      return;
    }
    for (int64_t j = 0; j < width; ++j) indices[j] = j < context ? static_cast<int32_t>(j) : -1;
    args.nan_count.data[row] = 0;
  });
  return absl::OkStatus();
}

}  // namespace tandem::kernels

// GatherRows and Argmax. Tested by rows_test.cc.
#include <cstring>
#include <limits>

#include "base/status_macros.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"

namespace tandem::kernels {

absl::Status GatherRows(const GatherRowsArgs& args) {
  const int64_t num_rows = args.rows.shape[0];
  const int64_t dim = args.table.shape[1];
  OpBorder border("GatherRows");
  border.Shape("table", args.table, args.table.shape)
      .Shape("rows", args.rows, {num_rows})
      .Shape("out", args.out, {num_rows, dim})
      .Ids("rows", args.rows, 0, args.table.shape[0]);
  RETURN_IF_ERROR(border.status());
  for (int64_t i = 0; i < num_rows; ++i) {
    std::memcpy(args.out.Row(i), args.table.Row(args.rows.data[i]), static_cast<size_t>(dim) * sizeof(Bf16));
  }
  return absl::OkStatus();
}

absl::Status Argmax(const ArgmaxArgs& args) {
  const int64_t num_rows = args.logits.shape[0];
  const int64_t vocab_size = args.logits.shape[1];
  OpBorder border("Argmax");
  border.Shape("logits", args.logits, args.logits.shape)
      .Require(vocab_size >= 1 && vocab_size <= std::numeric_limits<int32_t>::max(), "vocab_size", vocab_size,
               "in [1, 2^31)")
      .Shape("tokens", args.tokens, {num_rows});
  RETURN_IF_ERROR(border.status());
  for (int64_t i = 0; i < num_rows; ++i) {
    const float* row = args.logits.Row(i);
    int64_t best = 0;
    float best_logit = -std::numeric_limits<float>::infinity();
    for (int64_t token = 0; token < vocab_size; ++token) {
      if (row[token] > best_logit) {  // false for NaN
        best = token;
        best_logit = row[token];
      }
    }
    args.tokens.data[i] = static_cast<int32_t>(best);
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels

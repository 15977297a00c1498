// IndexWeights: the factor of each head in an index logit. Tested by kernels/cpu/index_logits_test.cc.
#include <cmath>

#include "base/status_macros.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"

namespace tandem::kernels {

absl::Status IndexWeights(const IndexWeightsArgs& args) {
  const auto [num_rows, num_heads] = args.projected.shape;
  OpBorder border("IndexWeights");
  border.Require(num_heads > 0, "num_heads", num_heads, "positive")
      .Require(args.head_dim > 0, "head_dim", args.head_dim, "positive")
      .Shape("projected", args.projected, {num_rows, num_heads})
      .Shape("q_scale", args.q_scale, {num_rows, num_heads})
      .Shape("weights", args.weights, {num_rows, num_heads});
  RETURN_IF_ERROR(border.status());
  const float constant = static_cast<float>(1.0 / std::sqrt(static_cast<double>(num_heads * args.head_dim)));
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t head = 0; head < num_heads; ++head) {
      args.weights.Row(row)[head] = (args.projected.Row(row)[head] * constant) * args.q_scale.Row(row)[head];
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels

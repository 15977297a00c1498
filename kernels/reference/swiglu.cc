// SwiGlu with the portable exponential. Tested by swiglu_test.cc.
#include "base/status_macros.h"
#include "kernels/lane_math.h"
#include "kernels/lanes.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"

namespace tandem::kernels {

absl::Status SwiGlu(const SwiGluArgs& args) {
  const auto [num_rows, dim] = args.gate.shape;
  OpBorder border("SwiGlu");
  border.Require(dim > 0 && dim % kLanes == 0, "dim", dim, "a positive multiple of 16")
      .Shape("gate", args.gate, {num_rows, dim})
      .Shape("up", args.up, {num_rows, dim})
      .Shape("y", args.y, {num_rows, dim});
  RETURN_IF_ERROR(border.status());
  const Lanes one = BroadcastLanes(1.0f);
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t k = 0; k < dim; k += kLanes) {
      const Lanes gate = LoadBf16Lanes(args.gate.Row(row) + k);
      const Lanes up = LoadBf16Lanes(args.up.Row(row) + k);
      const Lanes silu = gate / (one + ExpLanes(Lanes{} - gate));
      StoreBf16Lanes(args.y.Row(row) + k, silu * up);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels

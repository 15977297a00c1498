// Quant128 and DequantizeFp8Weight. Tested by quant_test.cc.
#include "base/status_macros.h"
#include "kernels/fp8_weight.h"
#include "kernels/lanes.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kernels/reference/quantize_group.h"

namespace tandem::kernels {

absl::Status Quant128(const Quant128Args& args) {
  const auto [num_rows, dim] = args.x.shape;
  OpBorder border("Quant128");
  border.Require(dim > 0 && dim % kQuantGroup == 0, "dim", dim, "a positive multiple of 128")
      .Shape("x", args.x, {num_rows, dim})
      .Shape("q", args.q, {num_rows, dim})
      .Shape("scale", args.scale, {num_rows, dim / kQuantGroup});
  RETURN_IF_ERROR(border.status());
  for (int64_t i = 0; i < num_rows; ++i) {
    for (int64_t k = 0; k < dim; k += kQuantGroup) {
      args.scale.Row(i)[k / kQuantGroup] = QuantizeGroup(args.x.Row(i) + k, args.scale_format, args.q.Row(i) + k);
    }
  }
  return absl::OkStatus();
}

absl::Status DequantizeFp8Weight(const DequantizeFp8WeightArgs& args) {
  const auto [out_dim, in_dim] = args.weight.weight.shape;
  OpBorder border("DequantizeFp8Weight");
  CheckFp8Weight(border, args.weight, out_dim, in_dim);
  border.Shape("out", args.out, {out_dim, in_dim});
  RETURN_IF_ERROR(border.status());
  for (int64_t n = 0; n < out_dim; ++n) {
    for (int64_t k = 0; k < in_dim; k += kLanes) {
      const Lanes scale = BroadcastLanes(args.weight.scale.Row(n / kQuantGroup)[k / kQuantGroup]);
      StoreBf16Lanes(args.out.Row(n) + k, LoadE4m3Lanes(args.weight.weight.Row(n) + k) * scale);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels

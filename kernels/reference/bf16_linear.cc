// Bf16Linear and Bf16LinearF32. Tested by bf16_linear_test.cc.
#include "base/status_macros.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kernels/reference/bf16_multiply.h"
#include "kernels/reference/lanes.h"
#include "kernels/reference/segments.h"

namespace tandem::kernels {
namespace {

void CheckOperands(OpBorder& border, const Matrix<const Bf16>& x, const Matrix<const Bf16>& weight) {
  const auto [num_rows, in_dim] = x.shape;
  border.Require(in_dim > 0 && in_dim % kLanes == 0, "in_dim", in_dim, "a positive multiple of 16")
      .Shape("x", x, {num_rows, in_dim})
      .Shape("weight", weight, {weight.shape[0], in_dim});
}

}  // namespace

absl::Status Bf16Linear(const Bf16LinearArgs& args) {
  OpBorder border("Bf16Linear");
  CheckOperands(border, args.x, args.weight);
  CheckSegments(border, args.k_segments, args.x.shape[1]);
  border.Shape("y", args.y, {args.x.shape[0], args.weight.shape[0]});
  RETURN_IF_ERROR(border.status());
  MultiplyBf16({.x = args.x, .w = args.weight, .k_segments = args.k_segments, .y_f32 = {}, .y_bf16 = args.y});
  return absl::OkStatus();
}

absl::Status Bf16LinearF32(const Bf16LinearF32Args& args) {
  OpBorder border("Bf16LinearF32");
  CheckOperands(border, args.x, args.weight);
  border.Shape("y", args.y, {args.x.shape[0], args.weight.shape[0]});
  RETURN_IF_ERROR(border.status());
  MultiplyBf16({.x = args.x, .w = args.weight, .k_segments = 1, .y_f32 = args.y, .y_bf16 = {}});
  return absl::OkStatus();
}

}  // namespace tandem::kernels

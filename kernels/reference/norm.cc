// RmsNorm, AddRmsNorm and LayerNorm: lane sums over the row, one rounding at the end. Tested by norm_test.cc.
#include <cmath>

#include "base/status_macros.h"
#include "kernels/lanes.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"

namespace tandem::kernels {
namespace {

// 1 / sqrt(sum / dim + eps); sqrt and division are exact to the last bit by IEEE.
float InverseRoot(float sum, int64_t dim, float eps) { return 1.0f / std::sqrt(sum / static_cast<float>(dim) + eps); }

void CheckDim(OpBorder& border, int64_t dim) {
  border.Require(dim > 0 && dim % kLanes == 0, "dim", dim, "a positive multiple of 16");
}

}  // namespace

absl::Status RmsNorm(const RmsNormArgs& args) {
  const auto [num_rows, dim] = args.x.shape;
  OpBorder border("RmsNorm");
  CheckDim(border, dim);
  border.Shape("x", args.x, {num_rows, dim}).Shape("weight", args.weight, {dim}).Shape("y", args.y, {num_rows, dim});
  RETURN_IF_ERROR(border.status());
  for (int64_t i = 0; i < num_rows; ++i) {
    const Bf16* x = args.x.Row(i);
    Bf16* y = args.y.Row(i);
    Lanes squares = {};
    for (int64_t k = 0; k < dim; k += kLanes) {
      const Lanes value = LoadBf16Lanes(x + k);
      squares += value * value;
    }
    const Lanes inverse = BroadcastLanes(InverseRoot(SumLanes(squares), dim, args.eps));
    for (int64_t k = 0; k < dim; k += kLanes) {
      StoreBf16Lanes(y + k, LoadBf16Lanes(args.weight.data + k) * (LoadBf16Lanes(x + k) * inverse));
    }
  }
  return absl::OkStatus();
}

absl::Status AddRmsNorm(const AddRmsNormArgs& args) {
  const auto [num_rows, dim] = args.x.shape;
  OpBorder border("AddRmsNorm");
  CheckDim(border, dim);
  border.Shape("x", args.x, {num_rows, dim})
      .Shape("residual", args.residual, {num_rows, dim})
      .Shape("weight", args.weight, {dim})
      .Shape("y", args.y, {num_rows, dim})
      .Shape("residual_out", args.residual_out, {num_rows, dim});
  RETURN_IF_ERROR(border.status());
  for (int64_t i = 0; i < num_rows; ++i) {
    const Bf16* x = args.x.Row(i);
    const Bf16* residual = args.residual.Row(i);
    Bf16* y = args.y.Row(i);
    Bf16* residual_out = args.residual_out.Row(i);
    Lanes squares = {};
    for (int64_t k = 0; k < dim; k += kLanes) {
      const Lanes sum = LoadBf16Lanes(x + k) + LoadBf16Lanes(residual + k);
      squares += sum * sum;
    }
    const Lanes inverse = BroadcastLanes(InverseRoot(SumLanes(squares), dim, args.eps));
    for (int64_t k = 0; k < dim; k += kLanes) {
      // The sum is made again rather than kept: it is exact to repeat, and the outputs may be the inputs themselves.
      const Lanes sum = LoadBf16Lanes(x + k) + LoadBf16Lanes(residual + k);
      StoreBf16Lanes(residual_out + k, sum);
      StoreBf16Lanes(y + k, LoadBf16Lanes(args.weight.data + k) * (sum * inverse));
    }
  }
  return absl::OkStatus();
}

absl::Status LayerNorm(const LayerNormArgs& args) {
  const auto [num_rows, dim] = args.x.shape;
  OpBorder border("LayerNorm");
  CheckDim(border, dim);
  border.Shape("x", args.x, {num_rows, dim})
      .Shape("weight", args.weight, {dim})
      .Shape("bias", args.bias, {dim})
      .Shape("y", args.y, {num_rows, dim});
  RETURN_IF_ERROR(border.status());
  for (int64_t i = 0; i < num_rows; ++i) {
    const Bf16* x = args.x.Row(i);
    Bf16* y = args.y.Row(i);
    Lanes sums = {};
    for (int64_t k = 0; k < dim; k += kLanes) sums += LoadBf16Lanes(x + k);
    const Lanes mean = BroadcastLanes(SumLanes(sums) / static_cast<float>(dim));
    Lanes squares = {};
    for (int64_t k = 0; k < dim; k += kLanes) {
      const Lanes centred = LoadBf16Lanes(x + k) - mean;
      squares += centred * centred;
    }
    const Lanes inverse = BroadcastLanes(InverseRoot(SumLanes(squares), dim, args.eps));
    for (int64_t k = 0; k < dim; k += kLanes) {
      const Lanes normed = (LoadBf16Lanes(x + k) - mean) * inverse;
      StoreBf16Lanes(y + k, normed * LoadLanes(args.weight.data + k) + LoadLanes(args.bias.data + k));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::kernels

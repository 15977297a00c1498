// The linear layers: Fp8Linear, Fp8GroupedLinear, Bf16Linear, Bf16LinearF32. Here are their borders; the arithmetic is
// in warpgroup_product.cuh and split_product.cuh. The copy engine reads operands 16 bytes at a time, so rows must begin
// on such addresses. Tested by linear_device_test.cc; docs/kernels/linear.md has the numbers.
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/product.cuh"
#include "kernels/fp8_weight.h"
#include "kernels/op_border.h"
#include "kernels/segments.h"

namespace tandem::kernels::cuda {
namespace {

template <typename T>
const uint8_t* Bytes(const T* values) {
  return reinterpret_cast<const uint8_t*>(values);
}

template <typename T>
void CheckAligned(OpBorder& border, absl::string_view address, absl::string_view stride,
                  const Matrix<const T>& matrix) {
  const auto misplaced = static_cast<int64_t>(reinterpret_cast<uintptr_t>(matrix.data) % 16);
  const int64_t stride_bytes = matrix.strides[0] * static_cast<int64_t>(sizeof(T));
  border.Require(misplaced == 0, address, misplaced, "0")
      .Require(matrix.shape[0] <= 1 || stride_bytes % 16 == 0, stride, stride_bytes, "a multiple of 16");
}

// The operands of either BF16 linear.
template <typename Args>
ProductTask Bf16Task(const Args& args, int64_t element_bytes) {
  return {.x = Bytes(args.x.data),
          .x_stride = args.x.strides[0] * 2,
          .w = Bytes(args.weight.data),
          .w_stride = args.weight.strides[0] * 2,
          .y = args.y.data,
          .y_stride = args.y.strides[0] * element_bytes,
          .num_rows = args.x.shape[0],
          .out_dim = args.weight.shape[0],
          .in_bytes = args.x.shape[1] * 2};
}

template <typename Args>
void CheckBf16(OpBorder& border, const Args& args) {
  const auto [num_rows, in_dim] = args.x.shape;
  const int64_t out_dim = args.weight.shape[0];
  border.Require(in_dim > 0 && in_dim % 16 == 0, "in_dim", in_dim, "a positive multiple of 16")
      .Shape("x", args.x, {num_rows, in_dim})
      .Shape("weight", args.weight, {out_dim, in_dim})
      .Shape("y", args.y, {num_rows, out_dim});
  CheckAligned(border, "x address modulo 16", "x row stride in bytes", args.x);
  CheckAligned(border, "weight address modulo 16", "weight row stride in bytes", args.weight);
}

// What Fp8Linear and Fp8GroupedLinear share; weight: of every group.
template <typename Args>
ProductTask Fp8Task(const Args& args, const Fp8Weight& weight, int64_t num_rows) {
  return {.x = Bytes(args.x.data),
          .x_stride = args.x.strides[0],
          .x_scale = args.x_scale.data,
          .x_scale_stride = args.x_scale.strides[0],
          .w = Bytes(weight.weight.data),
          .w_stride = weight.weight.strides[0],
          .w_scale = weight.scale.data,
          .w_scale_stride = weight.scale.strides[0],
          .y = args.y.data,
          .y_stride = args.y.strides[0] * 2,
          .num_rows = num_rows,
          .out_dim = weight.weight.shape[0],
          .in_bytes = args.x.shape[1],
          .k_segments = args.k_segments};
}

// Every group's weight has the shape and strides of the first and stands as far from its neighbour as the second does.
void CheckGroups(OpBorder& border, absl::Span<const Fp8Weight> weights, int64_t out_dim, int64_t in_dim) {
  const Fp8Weight& first = weights.front();
  const int64_t distance = weights.size() > 1 ? weights[1].weight.data - first.weight.data : 0;
  const int64_t scale_distance = weights.size() > 1 ? weights[1].scale.data - first.scale.data : 0;
  border.Require(distance % 16 == 0 && distance >= 0, "distance of weights in bytes", distance,
                 "a multiple of 16, not negative");
  for (size_t g = 0; g < weights.size() && border.ok(); ++g) {
    const auto group = static_cast<int64_t>(g);
    CheckFp8Weight(border, weights[g], out_dim, in_dim);
    border
        .Require(weights[g].weight.data == first.weight.data + group * distance &&
                     weights[g].scale.data == first.scale.data + group * scale_distance,
                 "group", group, "as far from the one before as the second is from the first")
        .Require(weights[g].weight.strides == first.weight.strides && weights[g].scale.strides == first.scale.strides,
                 "group", group, "of the strides of the first");
  }
}

}  // namespace

absl::Status Fp8Linear(Stream stream, const Fp8LinearArgs& args) {
  const auto [num_rows, in_dim] = args.x.shape;
  const int64_t out_dim = args.weight.weight.shape[0];
  OpBorder border("Fp8Linear");
  CheckFp8Weight(border, args.weight, out_dim, in_dim);
  CheckSegments(border, args.k_segments, in_dim);
  border.Shape("x", args.x, {num_rows, in_dim})
      .Shape("x_scale", args.x_scale, {num_rows, in_dim / kQuantGroup})
      .Shape("y", args.y, {num_rows, out_dim});
  CheckAligned(border, "x address modulo 16", "x row stride in bytes", args.x);
  CheckAligned(border, "weight address modulo 16", "weight row stride in bytes", args.weight.weight);
  if (!border.ok()) return border.status();
  return LaunchProduct(stream, "Fp8Linear", ProductKind::kE4m3ToBf16, Fp8Task(args, args.weight, num_rows));
}

absl::Status Fp8GroupedLinear(Stream stream, const Fp8GroupedLinearArgs& args) {
  const auto [num_x_rows, in_dim] = args.x.shape;
  const auto num_groups = static_cast<int64_t>(args.weights.size());
  const int64_t num_pairs = args.y.shape[0], out_dim = args.y.shape[1];
  OpBorder border("Fp8GroupedLinear");
  border.Require(num_groups > 0 && num_groups <= kMaxGroups, "weights", num_groups, "1 to 1024");
  if (!border.ok()) return border.status();
  CheckGroups(border, args.weights, out_dim, in_dim);
  CheckSegments(border, args.k_segments, in_dim);
  border.Shape("x", args.x, {num_x_rows, in_dim})
      .Shape("x_scale", args.x_scale, {num_x_rows, in_dim / kQuantGroup})
      .Shape("group_offsets", args.group_offsets, {num_groups + 1})
      .Shape("y", args.y, {num_pairs, out_dim});
  if (args.x_rows.is_null()) {
    border.Require(num_x_rows == num_pairs, "rows of x without x_rows", num_x_rows, "the number of pairs");
  } else {
    border.Shape("x_rows", args.x_rows, {num_pairs});
  }
  CheckAligned(border, "x address modulo 16", "x row stride in bytes", args.x);
  CheckAligned(border, "weight address modulo 16", "weight row stride in bytes", args.weights[0].weight);
  if (!border.ok()) return border.status();
  ProductTask task = Fp8Task(args, args.weights[0], num_pairs);
  task.x_rows = args.x_rows.data;
  task.group_offsets = args.group_offsets.data;
  task.num_groups = static_cast<int>(num_groups);
  if (num_groups > 1) {
    task.w_group_stride = args.weights[1].weight.data - args.weights[0].weight.data;
    task.w_scale_group_stride = args.weights[1].scale.data - args.weights[0].scale.data;
  }
  return LaunchProduct(stream, "Fp8GroupedLinear", ProductKind::kE4m3ToBf16, task);
}

absl::Status Bf16Linear(Stream stream, const Bf16LinearArgs& args) {
  OpBorder border("Bf16Linear");
  CheckBf16(border, args);
  CheckSegments(border, args.k_segments, args.x.shape[1]);
  if (!border.ok()) return border.status();
  ProductTask task = Bf16Task(args, 2);
  task.k_segments = args.k_segments;
  return LaunchProduct(stream, "Bf16Linear", ProductKind::kBf16ToBf16, task);
}

absl::Status Bf16LinearF32(Stream stream, const Bf16LinearF32Args& args) {
  OpBorder border("Bf16LinearF32");
  CheckBf16(border, args);
  if (!border.ok()) return border.status();
  return LaunchProduct(stream, "Bf16LinearF32", ProductKind::kBf16ToF32, Bf16Task(args, 4));
}

}  // namespace tandem::kernels::cuda

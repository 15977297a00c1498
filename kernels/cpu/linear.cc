// The linear layers: Fp8Linear, Fp8GroupedLinear, Bf16Linear, Bf16LinearF32. Outputs are spread over threads in pieces;
// x in E4M3 becomes BF16 once, in the workspace. The arithmetic is in linear_level.cc.
// Tested by fp8_linear_test.cc and bf16_linear_test.cc against kernels/reference, and by
// kernels/reference/fp8_linear_test.cc, bf16_linear_test.cc.
#include <algorithm>

#include "base/status_macros.h"
#include "kernels/cpu/levels.h"
#include "kernels/flush_subnormals.h"
#include "kernels/fp8_weight.h"
#include "kernels/op_border.h"
#include "kernels/ops.h"
#include "kernels/segments.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kInMultiple = 16;
constexpr int64_t kAlignment = 64;
// A task's outputs: a multiple of a panel of weight rows that cuts no group of 128, which shares its scales.
constexpr int64_t kOutsOfTask = 64;
// What a task should be worth, for waking a thread costs microseconds: multiply-adds at tens of them a nanosecond,
// weight bytes at tens of gigabytes a second.
constexpr int64_t kTaskMacs = 1 << 20;
constexpr int64_t kTaskWeights = 1 << 18;

const uint16_t* Bits(const Bf16* values) { return reinterpret_cast<const uint16_t*>(values); }
uint16_t* Bits(Bf16* values) { return reinterpret_cast<uint16_t*>(values); }

void CheckBf16Operands(OpBorder& border, const Matrix<const Bf16>& x, const Matrix<const Bf16>& weight) {
  const auto [num_rows, in_dim] = x.shape;
  border.Require(in_dim > 0 && in_dim % kInMultiple == 0, "in_dim", in_dim, "a positive multiple of 16")
      .Shape("x", x, {num_rows, in_dim})
      .Shape("weight", weight, {weight.shape[0], in_dim});
}

void CheckWorkspace(OpBorder& border, absl::Span<std::byte> workspace, int64_t num_rows, int64_t in_dim) {
  const auto address = reinterpret_cast<uintptr_t>(workspace.data());
  border
      .Require(static_cast<int64_t>(workspace.size()) >= Fp8LinearWorkspaceBytes(num_rows, in_dim), "workspace bytes",
               static_cast<int64_t>(workspace.size()), "at least Fp8LinearWorkspaceBytes")
      .Require(address % kAlignment == 0, "workspace address modulo 64", static_cast<int64_t>(address % kAlignment),
               "0");
}

// Rows of E4M3 as BF16 rows without gaps, times their scales where those go into the operands.
const uint16_t* DequantizeRows(const Matrix<const E4m3>& x, const Matrix<const float>& scale, ScaleFormat scale_format,
                               absl::Span<std::byte> workspace, ThreadPool* threads) {
  const int64_t num_rows = x.shape[0], in_dim = x.shape[1];
  const bool is_scaled = scale_format == ScaleFormat::kUe8m0;
  auto* target = reinterpret_cast<uint16_t*>(workspace.data());
  const int64_t rows_of_task = std::max<int64_t>(1, kTaskWeights / std::max<int64_t>(in_dim, 1));
  RunTasks(threads, (num_rows + rows_of_task - 1) / rows_of_task, [&](int64_t task) {
    const FlushSubnormals flush;
    const cpu::LevelOps& ops = cpu::ActiveLevelOps();
    const int64_t end = std::min(num_rows, (task + 1) * rows_of_task);
    for (int64_t row = task * rows_of_task; row < end; ++row) {
      ops.dequantize(reinterpret_cast<const uint8_t*>(x.Row(row)), is_scaled ? scale.Row(row) : nullptr, in_dim,
                     target + row * in_dim);
    }
  });
  return target;
}

// How many outputs a task takes when num_rows rows meet weights of out_dim rows.
int64_t OutsOfTask(int64_t num_rows, int64_t out_dim, int64_t in_dim) {
  const int64_t enough = std::max(kTaskMacs / std::max<int64_t>(num_rows * in_dim, 1), int64_t{1});
  const int64_t outs = std::min(enough, std::max(kTaskWeights / in_dim, int64_t{1}) * 4);
  return std::min((outs + kOutsOfTask - 1) / kOutsOfTask * kOutsOfTask, out_dim);
}

// Args: of Fp8Linear or Fp8GroupedLinear. x: their rows of x in BF16.
template <typename Args>
cpu::LinearTask TaskOf(const Args& args, const Fp8Weight& weight, const uint16_t* x, const int32_t* x_rows) {
  const bool has_factors = args.scale_format == ScaleFormat::kFloat32;
  return {.x = x,
          .x_stride = weight.weight.shape[1],
          .x_rows = x_rows,
          .in_dim = weight.weight.shape[1],
          .k_segments = args.k_segments,
          .w_e4m3 = reinterpret_cast<const uint8_t*>(weight.weight.data),
          .w_stride = weight.weight.strides[0],
          .w_scale = weight.scale.data,
          .w_scale_stride = weight.scale.strides[0],
          .x_scale = has_factors ? args.x_scale.data : nullptr,
          .x_scale_stride = args.x_scale.strides[0],
          .y_bf16 = Bits(args.y.data),
          .y_stride = args.y.strides[0]};
}

void RunLinear(const cpu::LinearTask& task, int64_t num_rows, int64_t out_dim, ThreadPool* threads) {
  if (num_rows == 0 || out_dim == 0) return;
  const cpu::LevelOps& ops = cpu::ActiveLevelOps();
  const int64_t outs = OutsOfTask(num_rows, out_dim, task.in_dim);
  RunTasks(threads, (out_dim + outs - 1) / outs, [&](int64_t i) {
    const FlushSubnormals flush;
    ops.linear(task, 0, num_rows, i * outs, std::min(out_dim, (i + 1) * outs));
  });
}

}  // namespace

absl::Status Fp8Linear(const Fp8LinearArgs& args) {
  const auto [num_rows, in_dim] = args.x.shape;
  const int64_t out_dim = args.weight.weight.shape[0];
  OpBorder border("Fp8Linear");
  CheckFp8Weight(border, args.weight, out_dim, in_dim);
  CheckSegments(border, args.k_segments, in_dim);
  border.Shape("x", args.x, {num_rows, in_dim})
      .Shape("x_scale", args.x_scale, {num_rows, in_dim / kQuantGroup})
      .Shape("y", args.y, {num_rows, out_dim});
  CheckWorkspace(border, args.workspace, num_rows, in_dim);
  RETURN_IF_ERROR(border.status());
  const uint16_t* x = DequantizeRows(args.x, args.x_scale, args.scale_format, args.workspace, args.threads);
  RunLinear(TaskOf(args, args.weight, x, nullptr), num_rows, out_dim, args.threads);
  return absl::OkStatus();
}

absl::Status Fp8GroupedLinear(const Fp8GroupedLinearArgs& args) {
  const int64_t num_groups = static_cast<int64_t>(args.weights.size());
  const auto [num_pairs, out_dim] = args.y.shape;
  const auto [num_x_rows, in_dim] = args.x.shape;
  OpBorder border("Fp8GroupedLinear");
  border.Shape("x", args.x, {num_x_rows, in_dim})
      .Shape("x_scale", args.x_scale, {num_x_rows, in_dim / kQuantGroup})
      .Shape("group_offsets", args.group_offsets, {num_groups + 1})
      .Shape("y", args.y, {num_pairs, out_dim});
  CheckSegments(border, args.k_segments, in_dim);
  CheckWorkspace(border, args.workspace, num_x_rows, in_dim);
  if (args.x_rows.is_null()) {
    border.Require(num_x_rows == num_pairs, "num_x_rows without x_rows", num_x_rows, "the number of y's rows");
  } else {
    border.Shape("x_rows", args.x_rows, {num_pairs}).Ids("x_rows", args.x_rows, 0, num_x_rows);
  }
  RETURN_IF_ERROR(border.status());
  const int32_t* offsets = args.group_offsets.data;
  border.Require(offsets[0] == 0, "group_offsets[0]", offsets[0], "0")
      .Require(offsets[num_groups] == num_pairs, "the last of group_offsets", offsets[num_groups],
               "the number of pairs");
  for (int64_t group = 0; group < num_groups; ++group) {
    border.Require(offsets[group] <= offsets[group + 1], "group_offsets of group", group, "ascending");
    if (offsets[group] < offsets[group + 1]) CheckFp8Weight(border, args.weights[group], out_dim, in_dim);
  }
  RETURN_IF_ERROR(border.status());
  if (num_pairs == 0 || out_dim == 0) return absl::OkStatus();

  const uint16_t* x = DequantizeRows(args.x, args.x_scale, args.scale_format, args.workspace, args.threads);
  const cpu::LevelOps& ops = cpu::ActiveLevelOps();
  // Expert by expert, each cut alike: an expert's rows share every weight that is decoded.
  const int64_t outs = OutsOfTask(std::max<int64_t>(1, num_pairs / num_groups), out_dim, in_dim);
  const int64_t pieces = (out_dim + outs - 1) / outs;
  RunTasks(args.threads, num_groups * pieces, [&](int64_t i) {
    const int64_t group = i / pieces, piece = i % pieces;
    if (offsets[group] == offsets[group + 1]) return;
    const FlushSubnormals flush;
    const cpu::LinearTask task = TaskOf(args, args.weights[group], x, args.x_rows.data);
    ops.linear(task, offsets[group], offsets[group + 1], piece * outs, std::min(out_dim, (piece + 1) * outs));
  });
  return absl::OkStatus();
}

absl::Status Bf16Linear(const Bf16LinearArgs& args) {
  const int64_t num_rows = args.x.shape[0], in_dim = args.x.shape[1], out_dim = args.weight.shape[0];
  OpBorder border("Bf16Linear");
  CheckBf16Operands(border, args.x, args.weight);
  CheckSegments(border, args.k_segments, in_dim);
  border.Shape("y", args.y, {num_rows, out_dim});
  RETURN_IF_ERROR(border.status());
  RunLinear({.x = Bits(args.x.data),
             .x_stride = args.x.strides[0],
             .in_dim = in_dim,
             .k_segments = args.k_segments,
             .w_bf16 = Bits(args.weight.data),
             .w_stride = args.weight.strides[0],
             .y_bf16 = Bits(args.y.data),
             .y_stride = args.y.strides[0]},
            num_rows, out_dim, args.threads);
  return absl::OkStatus();
}

absl::Status Bf16LinearF32(const Bf16LinearF32Args& args) {
  const int64_t num_rows = args.x.shape[0], in_dim = args.x.shape[1], out_dim = args.weight.shape[0];
  OpBorder border("Bf16LinearF32");
  CheckBf16Operands(border, args.x, args.weight);
  border.Shape("y", args.y, {num_rows, out_dim});
  RETURN_IF_ERROR(border.status());
  RunLinear({.x = Bits(args.x.data),
             .x_stride = args.x.strides[0],
             .in_dim = in_dim,
             .w_bf16 = Bits(args.weight.data),
             .w_stride = args.weight.strides[0],
             .y_f32 = args.y.data,
             .y_stride = args.y.strides[0]},
            num_rows, out_dim, args.threads);
  return absl::OkStatus();
}

}  // namespace tandem::kernels

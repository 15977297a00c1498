// The one product behind all linear layers: y = x w^T, once, once per head, or once per group of rows. linear.cu and
// mla_projections.cu fill and check the task, product.cu chooses and launches the kernel. For .cu files; the ops are
// the border.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/ops.h"

namespace tandem::kernels::cuda {

// Groups of rows whose sizes only the device knows, at most.
inline constexpr int kMaxGroups = 1024;

enum class ProductKind {
  kE4m3ToBf16,            // with scales; w is [out_dim, in_dim]
  kBf16ToBf16,            // w is [out_dim, in_dim]
  kBf16ToF32,             // w is [out_dim, in_dim]
  kTransposedBf16ToBf16,  // w is [in_dim, out_dim]
};

// Strides are in bytes, except those of scales.
struct ProductTask {
  const uint8_t* x = nullptr;  // [num_rows, in_bytes], rows 16-byte aligned
  int64_t x_stride = 0;
  const int32_t* x_rows = nullptr;  // row of x that row i reads; null: i
  const float* x_scale = nullptr;   // E4M3 only: [row of x, in_dim / 128]
  int64_t x_scale_stride = 0;
  const uint8_t* w = nullptr;  // [out_dim, in_bytes], rows 16-byte aligned; or [in_dim, out_dim], if so said
  int64_t w_stride = 0;
  const float* w_scale = nullptr;  // E4M3 only: [ceil(out_dim / 128), in_dim / 128]
  int64_t w_scale_stride = 0;
  void* y = nullptr;  // [num_rows, out_dim]
  int64_t y_stride = 0;
  int64_t num_rows = 0;
  int64_t out_dim = 0;
  int64_t in_bytes = 0;  // of a row of x; a multiple of 16
  int k_segments = 1;
  int steps_of_segment = 0;  // of 128 bytes
  int shape = -1;  // of tiles, for tests and benchmarks: number of the kernel's list; -1: the best by its model

  // Heads: one product each, this many bytes apart. Groups: weights and scales likewise; offsets in device memory.
  int num_heads = 1;
  int64_t x_head_stride = 0;
  int64_t y_head_stride = 0;
  int64_t w_group_stride = 0;
  int64_t w_scale_group_stride = 0;        // in elements
  const int32_t* group_offsets = nullptr;  // [num_groups + 1]; null: one group of all rows
  int num_groups = 1;
};

// Bytes of the summed axis that a kernel takes at once: 128 values in E4M3, which share their scales, or 64 in BF16.
inline constexpr int kStepBytes = 128;

// Enqueues the product of task, whose shapes, strides and alignment its op has checked. steps_of_segment is filled
// here. No rows or no outputs: nothing. Errors name `op`.
absl::Status LaunchProduct(Stream stream, absl::string_view op, ProductKind kind, ProductTask task);

// Its parts, each compiled on its own.
absl::Status LaunchE4m3ToBf16(Stream stream, absl::string_view op, const ProductTask& task);
absl::Status LaunchBf16ToBf16(Stream stream, absl::string_view op, const ProductTask& task);
absl::Status LaunchBf16ToF32(Stream stream, absl::string_view op, const ProductTask& task);
absl::Status LaunchTransposedBf16ToBf16(Stream stream, absl::string_view op, const ProductTask& task);

}  // namespace tandem::kernels::cuda

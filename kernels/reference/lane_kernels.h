// The few inner loops that take nearly all time, compiled once per instruction set level.
//
// A level changes speed, never a bit: the loops are written in Lanes and each keeps the order that its comment states.
// Inputs are floats, decoded tile by tile by the callers. Tested by lane_kernels_test.cc, level against level.
#pragma once

#include <cstdint>

namespace tandem::kernels {

// A row-major block of floats.
struct FloatRows {
  const float* data = nullptr;
  int64_t stride = 0;
  int count = 0;
};

struct LaneKernels {
  void (*decode_e4m3)(const void* source, float* target, int64_t count);  // count: a multiple of 16
  void (*decode_bf16)(const void* source, float* target, int64_t count);  // count: a multiple of 16

  // y[i * y_stride + j] = SumLanes of the products of x row i and w row j; dim is a multiple of 16.
  void (*dot)(const FloatRows& x, const FloatRows& w, int64_t dim, float* y, int64_t y_stride);

  // Goes on with lane sums over a further piece of the axis. The sixteen lanes of (i, j) start at
  // sums[(i * sums_stride + j) * 16].
  void (*dot_accumulate)(const FloatRows& x, const FloatRows& w, int64_t dim, float* sums, int64_t sums_stride);

  // One quantised block: the products are summed per lane from zero, then
  // the lanes of (i, j) += (those lane sums) * (x_scale[i] * w_scale).
  void (*dot_accumulate_scaled)(const FloatRows& x, const FloatRows& w, int64_t dim, const float* x_scale,
                                float w_scale, float* sums, int64_t sums_stride);

  // y[i * y_stride + c] += coefficients(i, 0) * rows(0, c), then + coefficients(i, 1) * rows(1, c), ...: ascending, one
  // accumulator per column. dim is a multiple of 16; coefficients has rows.count columns.
  void (*add_scaled_rows)(const FloatRows& coefficients, const FloatRows& rows, int64_t dim, float* y,
                          int64_t y_stride);
};

enum class LaneLevel { kBaseline, kAvx2, kAvx512 };

// Null where this machine or this build lacks the level.
const LaneKernels* LaneKernelsAt(LaneLevel level);
// The highest level of this machine.
const LaneKernels& BestLaneKernels();

}  // namespace tandem::kernels

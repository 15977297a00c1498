// Rope: rotates the pairs of each head's 64 rotary dims. A thread turns four pairs (16 bytes in, 16 out), eight threads
// a head. Bits are the CPU's: two products and one sum a value, one rounding each. Bytes: 256 per head and row, and 256
// of the table per row. Tested by rope_device_test.cc.
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row_math.cuh"
#include "kernels/op_border.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kRopeDim = 64;
constexpr int kPairs = kRopeDim / 2;
constexpr int kThreadsOfHead = kPairs / 4;
constexpr int kThreads = 128;

struct RopeTask {
  const Bf16* x;
  int64_t x_row_stride, x_head_stride;
  const int32_t* positions;
  const float* table;
  int64_t table_stride;
  Bf16* y;
  int64_t y_row_stride, y_head_stride;
  uint32_t num_rows;
  uint32_t num_heads;
};

// Half-split pairs: four values at source, four half a head further on. Interleaved ones: eight values in a row.
template <bool kIsInterleaved, bool kIsAligned>
__global__ void __launch_bounds__(kThreads) RopeKernel(RopeTask task) {
  ptx::LaunchDependents();
  ptx::WaitForGrids();
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  const uint32_t row = thread / kThreadsOfHead / task.num_heads;
  if (row >= task.num_rows) return;
  const uint32_t head = thread / kThreadsOfHead - row * task.num_heads;
  const uint32_t pair = thread % kThreadsOfHead * 4;
  const Bf16* x = task.x + row * task.x_row_stride + head * task.x_head_stride;
  Bf16* y = task.y + row * task.y_row_stride + head * task.y_head_stride;
  const float* turns = task.table + task.positions[row] * task.table_stride + pair;
  float cosines[4], sines[4];
  if constexpr (kIsAligned) {
    const float4 c = *reinterpret_cast<const float4*>(turns), s = *reinterpret_cast<const float4*>(turns + kPairs);
    cosines[0] = c.x, cosines[1] = c.y, cosines[2] = c.z, cosines[3] = c.w;
    sines[0] = s.x, sines[1] = s.y, sines[2] = s.z, sines[3] = s.w;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) cosines[i] = turns[i], sines[i] = turns[i + kPairs];
  }
  float a[4], b[4];
  if constexpr (kIsInterleaved) {
    const Floats8 values = Load8<kIsAligned>(x + 2 * pair);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = values.v[2 * i], b[i] = values.v[2 * i + 1];
  } else if constexpr (kIsAligned) {
    const uint2 low = *reinterpret_cast<const uint2*>(x + pair);
    const uint2 high = *reinterpret_cast<const uint2*>(x + pair + kPairs);
    a[0] = __uint_as_float(low.x << 16), a[1] = __uint_as_float(low.x & 0xffff0000u);
    a[2] = __uint_as_float(low.y << 16), a[3] = __uint_as_float(low.y & 0xffff0000u);
    b[0] = __uint_as_float(high.x << 16), b[1] = __uint_as_float(high.x & 0xffff0000u);
    b[2] = __uint_as_float(high.y << 16), b[3] = __uint_as_float(high.y & 0xffff0000u);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = DeviceFloat(x[pair + i]), b[i] = DeviceFloat(x[pair + i + kPairs]);
  }
  Floats8 result;  // interleaved
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float cosine = cosines[i], sine = sines[i];
    result.v[2 * i] = __fsub_rn(__fmul_rn(a[i], cosine), __fmul_rn(b[i], sine));
    result.v[2 * i + 1] = __fadd_rn(__fmul_rn(a[i], sine), __fmul_rn(b[i], cosine));
  }
  if constexpr (kIsInterleaved) {
    Store8<kIsAligned>(y + 2 * pair, result);
  } else if constexpr (kIsAligned) {
    *reinterpret_cast<uint2*>(y + pair) = {PackBf16(result.v[0], result.v[2]), PackBf16(result.v[4], result.v[6])};
    *reinterpret_cast<uint2*>(y + pair + kPairs) = {PackBf16(result.v[1], result.v[3]),
                                                    PackBf16(result.v[5], result.v[7])};
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      y[pair + i] = DeviceBf16(result.v[2 * i]);
      y[pair + i + kPairs] = DeviceBf16(result.v[2 * i + 1]);
    }
  }
}

}  // namespace

absl::Status Rope(Stream stream, const RopeArgs& args) {
  const int64_t num_rows = args.x.shape[0], num_heads = args.x.shape[1];
  OpBorder border("Rope");
  border.Shape("x", args.x, {num_rows, num_heads, kRopeDim})
      .Shape("positions", args.positions, {num_rows})
      .Shape("table", args.table, {args.table.shape[0], kRopeDim})
      .Shape("y", args.y, {num_rows, num_heads, kRopeDim})
      .Require(FitsThreads(num_rows, num_heads * kRopeDim), "num_rows * num_heads * 64",
               num_rows * num_heads * kRopeDim, kFitsThreads);
  if (!border.ok()) return border.status();
  if (num_rows == 0 || num_heads == 0) return absl::OkStatus();
  const RopeTask task = {.x = args.x.data,
                         .x_row_stride = args.x.strides[0],
                         .x_head_stride = args.x.strides[1],
                         .positions = args.positions.data,
                         .table = args.table.data,
                         .table_stride = args.table.strides[0],
                         .y = args.y.data,
                         .y_row_stride = args.y.strides[0],
                         .y_head_stride = args.y.strides[1],
                         .num_rows = static_cast<uint32_t>(num_rows),
                         .num_heads = static_cast<uint32_t>(num_heads)};
  const bool is_aligned = RowsAreAligned(args.x, 16) && RowsAreAligned(args.y, 16) && RowsAreAligned(args.table, 16);
  const bool is_interleaved = args.layout == RopeLayout::kInterleaved;
  auto* kernel = is_interleaved ? (is_aligned ? RopeKernel<true, true> : RopeKernel<true, false>)
                                : (is_aligned ? RopeKernel<false, true> : RopeKernel<false, false>);
  const int64_t blocks = (num_rows * num_heads * kThreadsOfHead + kThreads - 1) / kThreads;
  return LaunchEarly(stream, "Rope", kernel, blocks, kThreads, task);
}

}  // namespace tandem::kernels::cuda

// Hadamard128: sixteen threads a head, eight values each. Strides 1, 2 and 4 are within a thread, 8 to 64 between
// lanes: the CPU's butterflies in the CPU's order, hence its bits. Bytes: 512 per head. Tested by rope_device_test.cc.
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row_math.cuh"
#include "kernels/op_border.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kPoints = 128;
constexpr int kThreadsOfHead = kPoints / kVector;
constexpr int kThreads = 128;
constexpr float kNorm = 0x1.6a09e6p-4f;  // 128^-0.5

template <bool kIsAligned>
__global__ void __launch_bounds__(kThreads)
    HadamardKernel(const Bf16* x, int64_t x_row_stride, int64_t x_head_stride, Bf16* y, int64_t y_row_stride,
                   int64_t y_head_stride, uint32_t num_rows, uint32_t num_heads) {
  ptx::LaunchDependents();
  ptx::WaitForGrids();
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  const uint32_t row = thread / kThreadsOfHead / num_heads;
  const bool is_inside = row < num_rows;  // all lanes take part in the exchanges
  const uint32_t head = thread / kThreadsOfHead - row * num_heads;
  const uint32_t begin = thread % kThreadsOfHead * kVector;
  Floats8 points = {};
  if (is_inside) points = Load8<kIsAligned>(x + row * x_row_stride + head * x_head_stride + begin);
#pragma unroll
  for (int stride = 1; stride < kVector; stride *= 2) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if ((i & stride) != 0) continue;
      const float a = points.v[i], b = points.v[i + stride];
      points.v[i] = __fadd_rn(a, b);
      points.v[i + stride] = __fsub_rn(a, b);
    }
  }
#pragma unroll
  for (int distance = 1; distance < kThreadsOfHead; distance *= 2) {
    const bool is_upper = (threadIdx.x & distance) != 0;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, points.v[i], distance);
      points.v[i] = is_upper ? __fsub_rn(other, points.v[i]) : __fadd_rn(points.v[i], other);
    }
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) points.v[i] = __fmul_rn(points.v[i], kNorm);
  if (is_inside) Store8<kIsAligned>(y + row * y_row_stride + head * y_head_stride + begin, points);
}

}  // namespace

absl::Status Hadamard128(Stream stream, const Hadamard128Args& args) {
  const int64_t num_rows = args.x.shape[0], num_heads = args.x.shape[1];
  OpBorder border("Hadamard128");
  border.Shape("x", args.x, {num_rows, num_heads, kPoints})
      .Shape("y", args.y, {num_rows, num_heads, kPoints})
      .Require(FitsThreads(num_rows, num_heads * kPoints), "num_rows * num_heads * 128", num_rows * num_heads * kPoints,
               kFitsThreads);
  if (!border.ok()) return border.status();
  if (num_rows == 0 || num_heads == 0) return absl::OkStatus();
  auto* kernel =
      RowsAreAligned(args.x, 16) && RowsAreAligned(args.y, 16) ? HadamardKernel<true> : HadamardKernel<false>;
  const int64_t blocks = (num_rows * num_heads * kThreadsOfHead + kThreads - 1) / kThreads;
  return LaunchEarly(stream, "Hadamard128", kernel, blocks, kThreads, args.x.data, args.x.strides[0], args.x.strides[1],
                     args.y.data, args.y.strides[0], args.y.strides[1], static_cast<uint32_t>(num_rows),
                     static_cast<uint32_t>(num_heads));
}

}  // namespace tandem::kernels::cuda

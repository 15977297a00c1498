// SwiGlu and IndexWeights: elementwise, with the CPU's bits. SwiGlu: 8 values a thread; bytes per value 4 in, 2 out;
// the exponential and the division, about 30 instructions a value, hide below the loads. Tested by
// swiglu_device_test.cc.
#include <cuda_runtime.h>

#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row_math.cuh"
#include "kernels/op_border.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kThreads = 256;

template <bool kIsAligned>
__global__ void __launch_bounds__(kThreads)
    SwiGluKernel(const Bf16* gate, int64_t gate_stride, const Bf16* up, int64_t up_stride, Bf16* y, int64_t y_stride,
                 uint32_t num_rows, uint32_t vectors_of_row) {
  ptx::LaunchDependents();
  ptx::WaitForGrids();
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  const uint32_t row = thread / vectors_of_row;
  if (row >= num_rows) return;
  const uint32_t k = (thread - row * vectors_of_row) * kVector;
  const Floats8 gates = Load8<kIsAligned>(gate + row * gate_stride + k);
  const Floats8 ups = Load8<kIsAligned>(up + row * up_stride + k);
  Floats8 result;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const float exponential = PortableExp(__fsub_rn(0.0f, gates.v[i]));
    result.v[i] = __fmul_rn(__fdiv_rn(gates.v[i], __fadd_rn(1.0f, exponential)), ups.v[i]);
  }
  Store8<kIsAligned>(y + row * y_stride + k, result);
}

__global__ void __launch_bounds__(kThreads)
    IndexWeightsKernel(const float* projected, int64_t projected_stride, const float* q_scale, int64_t q_scale_stride,
                       float constant, float* weights, int64_t weights_stride, int64_t num_rows, int num_heads) {
  const int64_t thread = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = thread / num_heads;
  if (row >= num_rows) return;
  const int64_t head = thread - row * num_heads;
  weights[row * weights_stride + head] =
      __fmul_rn(__fmul_rn(projected[row * projected_stride + head], constant), q_scale[row * q_scale_stride + head]);
}

int64_t Blocks(int64_t num_threads) { return (num_threads + kThreads - 1) / kThreads; }

}  // namespace

absl::Status SwiGlu(Stream stream, const SwiGluArgs& args) {
  const auto [num_rows, dim] = args.gate.shape;
  OpBorder border("SwiGlu");
  border.Require(dim > 0 && dim % 16 == 0, "dim", dim, "a positive multiple of 16")
      .Shape("gate", args.gate, {num_rows, dim})
      .Shape("up", args.up, {num_rows, dim})
      .Shape("y", args.y, {num_rows, dim})
      .Require(FitsThreads(num_rows, dim), "num_rows * dim", num_rows * dim, kFitsThreads);
  if (!border.ok()) return border.status();
  if (num_rows == 0) return absl::OkStatus();
  const bool is_aligned = RowsAreAligned(args.gate, 16) && RowsAreAligned(args.up, 16) && RowsAreAligned(args.y, 16);
  auto* kernel = is_aligned ? SwiGluKernel<true> : SwiGluKernel<false>;
  return LaunchEarly(stream, "SwiGlu", kernel, Blocks(num_rows * (dim / kVector)), kThreads, args.gate.data,
                     args.gate.strides[0], args.up.data, args.up.strides[0], args.y.data, args.y.strides[0],
                     static_cast<uint32_t>(num_rows), static_cast<uint32_t>(dim / kVector));
}

absl::Status IndexWeights(Stream stream, const IndexWeightsArgs& args) {
  const auto [num_rows, num_heads] = args.projected.shape;
  OpBorder border("IndexWeights");
  border.Require(num_heads > 0, "num_heads", num_heads, "positive")
      .Require(args.head_dim > 0, "head_dim", args.head_dim, "positive")
      .Shape("projected", args.projected, {num_rows, num_heads})
      .Shape("q_scale", args.q_scale, {num_rows, num_heads})
      .Shape("weights", args.weights, {num_rows, num_heads});
  if (!border.ok()) return border.status();
  if (num_rows == 0) return absl::OkStatus();
  const auto constant = static_cast<float>(1.0 / std::sqrt(static_cast<double>(num_heads * args.head_dim)));
  IndexWeightsKernel<<<static_cast<unsigned>(Blocks(num_rows * num_heads)), kThreads, 0, stream>>>(
      args.projected.data, args.projected.strides[0], args.q_scale.data, args.q_scale.strides[0], constant,
      args.weights.data, args.weights.strides[0], num_rows, static_cast<int>(num_heads));
  return LaunchStatus("IndexWeights");
}

}  // namespace tandem::kernels::cuda

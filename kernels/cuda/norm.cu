// RmsNorm, AddRmsNorm and LayerNorm: one block per row, the row in registers, one read and one write of each value.
//
// The order of a row's sums is fixed by dim alone: a thread adds its chunks of eight values in ascending order, a warp
// adds its threads as a tree, and every thread adds the warps' sums in ascending order. How many threads and chunks
// there are follows from dim (PlanOf). That is not the CPU's order, which would cost 448 additions in a row at dim
// 7168; results differ from the CPU's by the rounding of the sum, at most one BF16 value. Bytes per row: RmsNorm and
// LayerNorm 4 dim, AddRmsNorm 8 dim. Tested by norm_device_test.cc.
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row_math.cuh"
#include "kernels/op_border.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kThreadsMax = 512;
constexpr int kThreads = 256;  // suffice up to dim 16384: more rows at a time on a multiprocessor
constexpr int kChunksMax = 8;  // of a thread, in registers
constexpr int64_t kDimMax = int64_t{kThreadsMax} * kChunksMax * kVector;

struct Plan {
  int threads;
  int chunks;
};
// As few chunks a thread as the threads allow, and no more threads than that needs.
Plan PlanOf(int64_t dim) {
  const int vectors = static_cast<int>(dim / kVector);
  const int limit = vectors <= kThreads * kChunksMax ? kThreads : kThreadsMax;
  int chunks = 1;
  while (chunks * limit < vectors) chunks *= 2;
  const int threads = (vectors + chunks - 1) / chunks;
  return {(threads + kWarp - 1) / kWarp * kWarp, chunks};
}

// The sum over the block's threads, in every thread. `partial` has a place for each warp.
__device__ __forceinline__ float BlockSum(float value, float* partial) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  const int num_warps = blockDim.x / kWarp;
  if (num_warps == 1) return value;
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = partial[0];
  for (int warp = 1; warp < num_warps; ++warp) sum += partial[warp];
  return sum;
}

__device__ __forceinline__ float InverseRoot(float sum, int dim, float eps) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(dim)), eps)));
}

struct NormTask {
  const Bf16* x;
  int64_t x_stride;
  const Bf16* residual;  // AddRmsNorm only
  int64_t residual_stride;
  const Bf16* weight;
  Bf16* y;
  int64_t y_stride;
  Bf16* residual_out;  // AddRmsNorm only
  int64_t residual_out_stride;
  int dim;
  float eps;
};

// What was loaded stays packed: the compiler would else keep it unpacked, in twice the registers, over the block's sum.
__device__ __forceinline__ void KeepPacked(Pairs4& pairs) {
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) asm volatile("" : "+r"(pairs.w[i]));
}

// x, or x + residual.
template <bool kHasResidual>
__device__ __forceinline__ Floats8 Summed(const Pairs4& x, const Pairs4& residual) {
  Floats8 values = Unpack(x);
  if constexpr (kHasResidual) {
    const Floats8 added = Unpack(residual);
#pragma unroll
    for (int i = 0; i < kVector; ++i) values.v[i] = __fadd_rn(values.v[i], added.v[i]);
  }
  return values;
}

template <int kChunks, bool kIsAligned, bool kHasResidual>
__global__ void __launch_bounds__(kChunks == kChunksMax ? kThreadsMax : kThreads) RmsNormKernel(NormTask task) {
  __shared__ float partial[kThreadsMax / kWarp];
  const int64_t row = blockIdx.x;
  const Bf16* x = task.x + row * task.x_stride;
  const Bf16* residual = kHasResidual ? task.residual + row * task.residual_stride : nullptr;
  Pairs4 values[kChunks] = {}, added[kHasResidual ? kChunks : 1] = {}, weights[kChunks] = {};
  // All loads first; the weight's does not wait for earlier grids.
  ptx::LaunchDependents();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int k = (c * blockDim.x + threadIdx.x) * kVector;
    if (k < task.dim) weights[c] = LoadPairs<kIsAligned>(task.weight + k);
  }
  ptx::WaitForGrids();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int k = (c * blockDim.x + threadIdx.x) * kVector;
    if (k < task.dim) {
      values[c] = LoadPairs<kIsAligned>(x + k);
      if constexpr (kHasResidual) added[c] = LoadPairs<kIsAligned>(residual + k);
    }
  }
  float sum = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const Floats8 summed = Summed<kHasResidual>(values[c], added[kHasResidual ? c : 0]);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum = __fadd_rn(sum, __fmul_rn(summed.v[i], summed.v[i]));
    KeepPacked(values[c]);
    if constexpr (kHasResidual) KeepPacked(added[c]);
  }
  const float inverse = InverseRoot(BlockSum(sum, partial), task.dim, task.eps);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int k = (c * blockDim.x + threadIdx.x) * kVector;
    if (k < task.dim) {
      const Floats8 summed = Summed<kHasResidual>(values[c], added[kHasResidual ? c : 0]);
      if constexpr (kHasResidual) {
        Store8<kIsAligned>(task.residual_out + row * task.residual_out_stride + k, summed);
      }
      const Floats8 weight = Unpack(weights[c]);
      Floats8 result;
#pragma unroll
      for (int i = 0; i < kVector; ++i) result.v[i] = __fmul_rn(weight.v[i], __fmul_rn(summed.v[i], inverse));
      Store8<kIsAligned>(task.y + row * task.y_stride + k, result);
    }
  }
}

template <int kChunks, bool kIsAligned>
__global__ void __launch_bounds__(kThreadsMax)
    LayerNormKernel(const Bf16* x, int64_t x_stride, const float* weight, const float* bias, Bf16* y, int64_t y_stride,
                    int dim, float eps) {
  __shared__ float partial[2][kThreadsMax / kWarp];  // one for each sum: no wait before the second
  const int64_t row = blockIdx.x;
  Floats8 values[kChunks];
  float sum = 0;
  ptx::LaunchDependents();
  ptx::WaitForGrids();
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int k = (c * blockDim.x + threadIdx.x) * kVector;
    values[c] = {};
    if (k < dim) values[c] = Load8<kIsAligned>(x + row * x_stride + k);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum = __fadd_rn(sum, values[c].v[i]);
  }
  const float mean = __fdiv_rn(BlockSum(sum, partial[0]), static_cast<float>(dim));
  float squares = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if ((c * blockDim.x + threadIdx.x) * kVector >= dim) continue;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      values[c].v[i] = __fsub_rn(values[c].v[i], mean);
      squares = __fadd_rn(squares, __fmul_rn(values[c].v[i], values[c].v[i]));
    }
  }
  const float inverse = InverseRoot(BlockSum(squares, partial[1]), dim, eps);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int k = (c * blockDim.x + threadIdx.x) * kVector;
    if (k >= dim) continue;
    const Floats8 weights = Load8<kIsAligned>(weight + k), biases = Load8<kIsAligned>(bias + k);
    Floats8 result;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      result.v[i] = __fadd_rn(__fmul_rn(__fmul_rn(values[c].v[i], inverse), weights.v[i]), biases.v[i]);
    }
    Store8<kIsAligned>(y + row * y_stride + k, result);
  }
}

void CheckDim(OpBorder& border, int64_t dim) {
  border.Require(dim > 0 && dim % 16 == 0, "dim", dim, "a positive multiple of 16")
      .Require(dim <= kDimMax, "dim", dim, "at most 32768 on a device");
}

template <bool kIsAligned, bool kHasResidual>
absl::Status LaunchRmsNorm(Stream stream, absl::string_view op, const NormTask& task, int64_t num_rows) {
  const Plan plan = PlanOf(task.dim);
  auto* kernel = plan.chunks == 1   ? RmsNormKernel<1, kIsAligned, kHasResidual>
                 : plan.chunks == 2 ? RmsNormKernel<2, kIsAligned, kHasResidual>
                 : plan.chunks == 4 ? RmsNormKernel<4, kIsAligned, kHasResidual>
                                    : RmsNormKernel<8, kIsAligned, kHasResidual>;
  return LaunchEarly(stream, op, kernel, num_rows, plan.threads, task);
}

template <bool kIsAligned>
absl::Status LaunchLayerNorm(Stream stream, const LayerNormArgs& args) {
  const auto [num_rows, dim] = args.x.shape;
  const Plan plan = PlanOf(dim);
  auto* kernel = plan.chunks == 1   ? LayerNormKernel<1, kIsAligned>
                 : plan.chunks == 2 ? LayerNormKernel<2, kIsAligned>
                 : plan.chunks == 4 ? LayerNormKernel<4, kIsAligned>
                                    : LayerNormKernel<8, kIsAligned>;
  return LaunchEarly(stream, "LayerNorm", kernel, num_rows, plan.threads, args.x.data, args.x.strides[0],
                     args.weight.data, args.bias.data, args.y.data, args.y.strides[0], static_cast<int>(dim), args.eps);
}

}  // namespace

absl::Status RmsNorm(Stream stream, const RmsNormArgs& args) {
  const auto [num_rows, dim] = args.x.shape;
  OpBorder border("RmsNorm");
  CheckDim(border, dim);
  border.Shape("x", args.x, {num_rows, dim}).Shape("weight", args.weight, {dim}).Shape("y", args.y, {num_rows, dim});
  if (!border.ok()) return border.status();
  if (num_rows == 0) return absl::OkStatus();
  const NormTask task = {.x = args.x.data,
                         .x_stride = args.x.strides[0],
                         .weight = args.weight.data,
                         .y = args.y.data,
                         .y_stride = args.y.strides[0],
                         .dim = static_cast<int>(dim),
                         .eps = args.eps};
  if (RowsAreAligned(args.x, 16) && RowsAreAligned(args.weight, 16) && RowsAreAligned(args.y, 16)) {
    return LaunchRmsNorm<true, false>(stream, "RmsNorm", task, num_rows);
  }
  return LaunchRmsNorm<false, false>(stream, "RmsNorm", task, num_rows);
}

absl::Status AddRmsNorm(Stream stream, const AddRmsNormArgs& args) {
  const auto [num_rows, dim] = args.x.shape;
  OpBorder border("AddRmsNorm");
  CheckDim(border, dim);
  border.Shape("x", args.x, {num_rows, dim})
      .Shape("residual", args.residual, {num_rows, dim})
      .Shape("weight", args.weight, {dim})
      .Shape("y", args.y, {num_rows, dim})
      .Shape("residual_out", args.residual_out, {num_rows, dim});
  if (!border.ok()) return border.status();
  if (num_rows == 0) return absl::OkStatus();
  const NormTask task = {.x = args.x.data,
                         .x_stride = args.x.strides[0],
                         .residual = args.residual.data,
                         .residual_stride = args.residual.strides[0],
                         .weight = args.weight.data,
                         .y = args.y.data,
                         .y_stride = args.y.strides[0],
                         .residual_out = args.residual_out.data,
                         .residual_out_stride = args.residual_out.strides[0],
                         .dim = static_cast<int>(dim),
                         .eps = args.eps};
  if (RowsAreAligned(args.x, 16) && RowsAreAligned(args.residual, 16) && RowsAreAligned(args.weight, 16) &&
      RowsAreAligned(args.y, 16) && RowsAreAligned(args.residual_out, 16)) {
    return LaunchRmsNorm<true, true>(stream, "AddRmsNorm", task, num_rows);
  }
  return LaunchRmsNorm<false, true>(stream, "AddRmsNorm", task, num_rows);
}

absl::Status LayerNorm(Stream stream, const LayerNormArgs& args) {
  const auto [num_rows, dim] = args.x.shape;
  OpBorder border("LayerNorm");
  CheckDim(border, dim);
  border.Shape("x", args.x, {num_rows, dim})
      .Shape("weight", args.weight, {dim})
      .Shape("bias", args.bias, {dim})
      .Shape("y", args.y, {num_rows, dim});
  if (!border.ok()) return border.status();
  if (num_rows == 0) return absl::OkStatus();
  if (RowsAreAligned(args.x, 16) && RowsAreAligned(args.weight, 16) && RowsAreAligned(args.bias, 16) &&
      RowsAreAligned(args.y, 16)) {
    return LaunchLayerNorm<true>(stream, args);
  }
  return LaunchLayerNorm<false>(stream, args);
}

}  // namespace tandem::kernels::cuda

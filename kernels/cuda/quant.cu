// Quant128 and DequantizeFp8Weight, with the CPU's bits. Quant128: sixteen threads a group of 128 channels; bytes per
// value: 2 in, 1 out, and 4 per group. DequantizeFp8Weight: 8 values a thread; 1 in, 2 out.
// Tested by quant_device_test.cc.
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/quantize.cuh"
#include "kernels/cuda/row_math.cuh"
#include "kernels/op_border.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr uint32_t kGroup = kQuantGroup;

template <bool kIsAligned>
__global__ void __launch_bounds__(kThreads)
    QuantKernel(const Bf16* x, int64_t x_stride, ScaleFormat format, uint8_t* q, int64_t q_stride, float* scale,
                int64_t scale_stride, uint32_t num_rows, uint32_t groups_of_row) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  const uint32_t row = thread / kThreadsOfGroup / groups_of_row;
  const uint32_t group = thread / kThreadsOfGroup - row * groups_of_row;
  const uint32_t lane = thread % kThreadsOfGroup;
  const uint32_t k = group * kGroup + lane * kVector;
  const bool is_inside = row < num_rows;
  ptx::LaunchDependents();
  ptx::WaitForGrids();
  Pairs4 values = {};
  if (is_inside) values = LoadPairs<kIsAligned>(x + row * x_stride + k);
  const QuantizedVector quantized = QuantizeVector(values, format);
  if (!is_inside) return;
  StoreCodes<kIsAligned>(q + row * q_stride + k, quantized.codes);
  if (lane == 0) scale[row * scale_stride + group] = quantized.scale;
}

template <bool kIsAligned>
__global__ void __launch_bounds__(kThreads)
    DequantizeKernel(const uint8_t* weight, int64_t weight_stride, const float* scale, int64_t scale_stride, Bf16* out,
                     int64_t out_stride, uint32_t num_rows, uint32_t vectors_of_row) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  const uint32_t row = thread / vectors_of_row;
  if (row >= num_rows) return;
  const uint32_t k = (thread - row * vectors_of_row) * kVector;
  const uint8_t* source = weight + row * weight_stride + k;
  uint32_t words[2];
  if constexpr (kIsAligned) {
    const uint2 codes = *reinterpret_cast<const uint2*>(source);
    words[0] = codes.x, words[1] = codes.y;
  } else {
    words[0] = words[1] = 0;
#pragma unroll
    for (int i = 0; i < kVector; ++i) words[i / 4] |= static_cast<uint32_t>(source[i]) << (i % 4 * 8);
  }
  const float factor = scale[row / kGroup * scale_stride + k / kGroup];
  Floats8 values;
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    const auto code = static_cast<__nv_fp8_storage_t>(words[i / 4] >> (i % 4 * 8));
    values.v[i] = __fmul_rn(__half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3))), factor);  // exact so far
  }
  Store8<kIsAligned>(out + row * out_stride + k, values);
}

int64_t Blocks(int64_t num_threads) { return (num_threads + kThreads - 1) / kThreads; }

}  // namespace

absl::Status Quant128(Stream stream, const Quant128Args& args) {
  const auto [num_rows, dim] = args.x.shape;
  OpBorder border("Quant128");
  border.Require(dim > 0 && dim % kQuantGroup == 0, "dim", dim, "a positive multiple of 128")
      .Shape("x", args.x, {num_rows, dim})
      .Shape("q", args.q, {num_rows, dim})
      .Shape("scale", args.scale, {num_rows, dim / kQuantGroup})
      .Require(FitsThreads(num_rows, dim), "num_rows * dim", num_rows * dim, kFitsThreads);
  if (!border.ok()) return border.status();
  if (num_rows == 0) return absl::OkStatus();
  auto* kernel = RowsAreAligned(args.x, 16) && RowsAreAligned(args.q, 8) ? QuantKernel<true> : QuantKernel<false>;
  return LaunchEarly(stream, "Quant128", kernel, Blocks(num_rows * (dim / kVector)), kThreads, args.x.data,
                     args.x.strides[0], args.scale_format, reinterpret_cast<uint8_t*>(args.q.data), args.q.strides[0],
                     args.scale.data, args.scale.strides[0], static_cast<uint32_t>(num_rows),
                     static_cast<uint32_t>(dim / kQuantGroup));
}

absl::Status DequantizeFp8Weight(Stream stream, const DequantizeFp8WeightArgs& args) {
  const auto [out_dim, in_dim] = args.weight.weight.shape;
  OpBorder border("DequantizeFp8Weight");
  border.Require(in_dim > 0 && in_dim % kQuantGroup == 0, "in_dim", in_dim, "a positive multiple of 128")
      .Shape("weight", args.weight.weight, {out_dim, in_dim})
      .Shape("weight scale", args.weight.scale, {(out_dim + kQuantGroup - 1) / kQuantGroup, in_dim / kQuantGroup})
      .Shape("out", args.out, {out_dim, in_dim})
      .Require(FitsThreads(out_dim, in_dim), "out_dim * in_dim", out_dim * in_dim, kFitsThreads);
  if (!border.ok()) return border.status();
  if (out_dim == 0) return absl::OkStatus();
  auto* kernel = RowsAreAligned(args.weight.weight, 8) && RowsAreAligned(args.out, 16) ? DequantizeKernel<true>
                                                                                       : DequantizeKernel<false>;
  kernel<<<static_cast<unsigned>(Blocks(out_dim * (in_dim / kVector))), kThreads, 0, stream>>>(
      reinterpret_cast<const uint8_t*>(args.weight.weight.data), args.weight.weight.strides[0], args.weight.scale.data,
      args.weight.scale.strides[0], args.out.data, args.out.strides[0], static_cast<uint32_t>(out_dim),
      static_cast<uint32_t>(in_dim / kVector));
  return LaunchStatus("DequantizeFp8Weight");
}

}  // namespace tandem::kernels::cuda

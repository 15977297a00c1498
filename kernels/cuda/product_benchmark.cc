// Every shape of tiles at some products: what the model of warpgroup_launch.cuh chooses from.
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_benchmark.h"
#include "kernels/cuda/product.cuh"

namespace tandem::kernels::cuda {
namespace {

void Case(DeviceBenchmark& benchmark, int64_t num_rows, int64_t out_dim, int64_t in_dim, int segments) {
  const int64_t x_scales = num_rows * in_dim / 128, w_scales = (out_dim + 127) / 128 * in_dim / 128;
  const int64_t bytes = out_dim * in_dim + w_scales * 4 + num_rows * in_dim + x_scales * 4 + num_rows * out_dim * 2;
  const int num_sets = DeviceBenchmark::NumSets(bytes);
  const auto x = DeviceArray<E4m3>::Normal(benchmark, num_sets * num_rows * in_dim, 64);
  const auto x_scale = DeviceArray<float>::PowersOfTwo(benchmark, num_sets * x_scales, -9, -7);
  const auto w = DeviceArray<E4m3>::Normal(benchmark, num_sets * out_dim * in_dim, 64);
  const auto w_scale = DeviceArray<float>::PowersOfTwo(benchmark, num_sets * w_scales, -9, -7);
  const auto y = DeviceArray<Bf16>::Zeros(benchmark, num_sets * num_rows * out_dim);
  for (int shape = -1; shape < (segments > 1 ? 8 : 9); ++shape) {
    benchmark.Measure({.op = shape < 0 ? "the chosen shape" : absl::StrCat("tile shape ", shape),
                       .shape = absl::StrCat("M=", num_rows, " ", out_dim, "x", in_dim, " S=", segments),
                       .bytes = static_cast<double>(bytes),
                       .flops = 2.0 * static_cast<double>(num_rows * out_dim * in_dim),
                       .num_sets = num_sets,
                       .launch = [&, shape](Stream stream, int64_t set) {
                         return LaunchProduct(
                             stream, "product", ProductKind::kE4m3ToBf16,
                             {.x = reinterpret_cast<const uint8_t*>(x.data()) + set * num_rows * in_dim,
                              .x_stride = in_dim,
                              .x_scale = x_scale.data() + set * x_scales,
                              .x_scale_stride = in_dim / 128,
                              .w = reinterpret_cast<const uint8_t*>(w.data()) + set * out_dim * in_dim,
                              .w_stride = in_dim,
                              .w_scale = w_scale.data() + set * w_scales,
                              .w_scale_stride = in_dim / 128,
                              .y = y.data() + set * num_rows * out_dim,
                              .y_stride = out_dim * 2,
                              .num_rows = num_rows,
                              .out_dim = out_dim,
                              .in_bytes = in_dim,
                              .k_segments = segments,
                              .shape = shape});
                       }});
  }
}

void Cases(DeviceBenchmark& benchmark) {
  for (const int64_t num_rows : {1, 16, 64, 128, 512, 4096}) {
    Case(benchmark, num_rows, 2112, 7168, 1);
    Case(benchmark, num_rows, 4096, 7168, 1);
    Case(benchmark, num_rows, 24576, 1536, 1);
    Case(benchmark, num_rows, 7168, 16384, 8);
    Case(benchmark, num_rows, 7168, 2048, 8);
  }
}

}  // namespace
}  // namespace tandem::kernels::cuda

int main(int argc, char** argv) {
  return tandem::kernels::cuda::DeviceBenchmarkMain(argc, argv, tandem::kernels::cuda::Cases);
}

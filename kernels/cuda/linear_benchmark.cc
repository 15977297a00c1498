// The linear layers at the shapes of DeepSeek-V3.2, decode and prefill, beside cuBLASLt where the machine has it.
// docs/kernels/linear.md has results. Peers' times without cuBLASLt were measured once on one H200 and stand as text.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_benchmark.h"
#include "kernels/cuda/device_cublas.h"
#include "kernels/cuda/ops.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int64_t kHeavyRows = 256;  // from here on the tensor cores are the limit

std::string ShapeName(int64_t num_rows, int64_t out_dim, int64_t in_dim) {
  return absl::StrCat("M=", num_rows, " ", out_dim, "x", in_dim);
}

void CompareWithCublas(DeviceBenchmark& benchmark, CublasProduct::Format format, int64_t num_rows, int64_t out_dim,
                       int64_t in_dim, BenchmarkCase product, const void* x, const float* x_scale, const void* w,
                       const float* w_scale, void* y) {
  product.op = absl::StrCat("  cuBLASLt");
  if (!benchmark.Wants(product.op, product.shape)) return;
  absl::StatusOr<CublasProduct> peer = CublasProduct::Plan(format, num_rows, out_dim, in_dim);
  if (!peer.ok()) {
    std::printf("%s %s: %s\n", product.op.c_str(), product.shape.c_str(), peer.status().ToString().c_str());
    return;
  }
  const int64_t element = format == CublasProduct::Format::kE4m3 ? 1 : 2;
  const int64_t out_element = format == CublasProduct::Format::kBf16ToF32 ? 4 : 2;
  product.launch = [&, element, out_element](Stream stream, int64_t set) {
    return peer->Launch(stream, static_cast<const uint8_t*>(x) + set * num_rows * in_dim * element, x_scale,
                        static_cast<const uint8_t*>(w) + set * out_dim * in_dim * element, w_scale,
                        static_cast<uint8_t*>(y) + set * num_rows * out_dim * out_element);
  };
  benchmark.Measure(product);
}

void Fp8Case(DeviceBenchmark& benchmark, int64_t num_rows, int64_t out_dim, int64_t in_dim, int segments,
             const std::string& peer) {
  const std::string shape =
      absl::StrCat(ShapeName(num_rows, out_dim, in_dim), segments > 1 ? absl::StrCat(" S=", segments) : "");
  if (!benchmark.Wants("Fp8Linear", shape) && !benchmark.Wants("  cuBLASLt", shape)) return;
  const int64_t x_scales = num_rows * in_dim / 128, w_scales = (out_dim + 127) / 128 * in_dim / 128;
  const int64_t bytes = out_dim * in_dim + w_scales * 4 + num_rows * in_dim + x_scales * 4 + num_rows * out_dim * 2;
  const int num_sets = DeviceBenchmark::NumSets(bytes);
  const int64_t padded_rows = (num_rows + 3) / 4 * 4;
  const auto x = DeviceArray<E4m3>::Normal(benchmark, num_sets * padded_rows * in_dim, 64);
  const auto x_scale = DeviceArray<float>::PowersOfTwo(benchmark, num_sets * padded_rows * in_dim / 128, -9, -7);
  const auto w = DeviceArray<E4m3>::Normal(benchmark, num_sets * out_dim * in_dim, 64);
  const auto w_scale = DeviceArray<float>::PowersOfTwo(benchmark, num_sets * w_scales + 4 * out_dim, -9, -7);
  const auto y = DeviceArray<Bf16>::Zeros(benchmark, num_sets * padded_rows * out_dim);
  BenchmarkCase product{.op = "Fp8Linear",
                        .shape = shape,
                        .bytes = static_cast<double>(bytes),
                        .flops = 2.0 * static_cast<double>(num_rows * out_dim * in_dim),
                        .tensor_rate = num_rows >= kHeavyRows ? TensorRate::kFp8 : TensorRate::kNone,
                        .num_sets = num_sets,
                        .peer = peer};
  product.launch = [&](Stream stream, int64_t set) {
    return Fp8Linear(stream, {.x = {x.data() + set * num_rows * in_dim, {num_rows, in_dim}},
                              .x_scale = {x_scale.data() + set * x_scales, {num_rows, in_dim / 128}},
                              .weight = {{w.data() + set * out_dim * in_dim, {out_dim, in_dim}},
                                         {w_scale.data() + set * w_scales, {(out_dim + 127) / 128, in_dim / 128}}},
                              .k_segments = segments,
                              .y = {y.data() + set * num_rows * out_dim, {num_rows, out_dim}}});
  };
  benchmark.Measure(product);
  product.peer = "";
  CompareWithCublas(benchmark, CublasProduct::Format::kE4m3, padded_rows, out_dim, in_dim, product, x.data(),
                    x_scale.data(), w.data(), w_scale.data(), y.data());
}

// num_groups experts with rows_of_group rows each.
void GroupedCase(DeviceBenchmark& benchmark, int64_t num_groups, int64_t rows_of_group, int64_t out_dim, int64_t in_dim,
                 int segments, const std::string& peer) {
  const std::string shape = absl::StrCat(num_groups, " x ", ShapeName(rows_of_group, out_dim, in_dim),
                                         segments > 1 ? absl::StrCat(" S=", segments) : "");
  if (!benchmark.Wants("Fp8GroupedLinear", shape)) return;
  const int64_t num_rows = num_groups * rows_of_group, scale_rows = (out_dim + 127) / 128;
  const int64_t x_scales = num_rows * in_dim / 128, w_scales = num_groups * scale_rows * in_dim / 128;
  const int64_t w_bytes = num_groups * out_dim * in_dim;
  const int64_t bytes = w_bytes + w_scales * 4 + num_rows * in_dim + x_scales * 4 + num_rows * out_dim * 2;
  const int num_sets = rows_of_group >= 1024 ? 1 : DeviceBenchmark::NumSets(bytes);
  const auto x = DeviceArray<E4m3>::Normal(benchmark, num_sets * num_rows * in_dim, 64);
  const auto x_scale = DeviceArray<float>::PowersOfTwo(benchmark, num_sets * x_scales, -9, -7);
  const auto w = DeviceArray<E4m3>::Normal(benchmark, num_sets * w_bytes, 64);
  const auto w_scale = DeviceArray<float>::PowersOfTwo(benchmark, num_sets * w_scales, -9, -7);
  const auto y = DeviceArray<Bf16>::Zeros(benchmark, num_sets * num_rows * out_dim);
  std::vector<int32_t> offset_values;
  for (int64_t g = 0; g <= num_groups; ++g) offset_values.push_back(static_cast<int32_t>(g * rows_of_group));
  const auto offsets = DeviceArray<int32_t>::Of(benchmark, offset_values);
  benchmark.Measure(
      {.op = "Fp8GroupedLinear",
       .shape = shape,
       .bytes = static_cast<double>(bytes),
       .flops = 2.0 * static_cast<double>(num_rows * out_dim * in_dim),
       .tensor_rate = rows_of_group >= kHeavyRows ? TensorRate::kFp8 : TensorRate::kNone,
       .num_sets = num_sets,
       .launch =
           [&](Stream stream, int64_t set) {
             std::vector<Fp8Weight> weights;
             for (int64_t g = 0; g < num_groups; ++g) {
               weights.push_back(
                   {{w.data() + set * w_bytes + g * out_dim * in_dim, {out_dim, in_dim}},
                    {w_scale.data() + set * w_scales + g * scale_rows * (in_dim / 128), {scale_rows, in_dim / 128}}});
             }
             return Fp8GroupedLinear(stream, {.x = {x.data() + set * num_rows * in_dim, {num_rows, in_dim}},
                                              .x_scale = {x_scale.data() + set * x_scales, {num_rows, in_dim / 128}},
                                              .group_offsets = {offsets.data(), {num_groups + 1}},
                                              .weights = weights,
                                              .k_segments = segments,
                                              .y = {y.data() + set * num_rows * out_dim, {num_rows, out_dim}}});
           },
       .peer = peer});
}

void Bf16Case(DeviceBenchmark& benchmark, int64_t num_rows, int64_t out_dim, int64_t in_dim) {
  const std::string shape = ShapeName(num_rows, out_dim, in_dim);
  if (!benchmark.Wants("Bf16LinearF32", shape) && !benchmark.Wants("  cuBLASLt", shape)) return;
  const int64_t bytes = (out_dim + num_rows) * in_dim * 2 + num_rows * out_dim * 4;
  const int num_sets = DeviceBenchmark::NumSets(bytes);
  const auto x = DeviceArray<Bf16>::Normal(benchmark, num_sets * num_rows * in_dim, 1);
  const auto w = DeviceArray<Bf16>::Normal(benchmark, num_sets * out_dim * in_dim, 0.02f);
  const auto y = DeviceArray<float>::Zeros(benchmark, num_sets * num_rows * out_dim);
  BenchmarkCase product{.op = "Bf16LinearF32",
                        .shape = shape,
                        .bytes = static_cast<double>(bytes),
                        .flops = 2.0 * static_cast<double>(num_rows * out_dim * in_dim),
                        .tensor_rate = num_rows >= kHeavyRows ? TensorRate::kBf16 : TensorRate::kNone,
                        .num_sets = num_sets};
  product.launch = [&](Stream stream, int64_t set) {
    return Bf16LinearF32(stream, {.x = {x.data() + set * num_rows * in_dim, {num_rows, in_dim}},
                                  .weight = {w.data() + set * out_dim * in_dim, {out_dim, in_dim}},
                                  .y = {y.data() + set * num_rows * out_dim, {num_rows, out_dim}}});
  };
  benchmark.Measure(product);
  CompareWithCublas(benchmark, CublasProduct::Format::kBf16ToF32, num_rows, out_dim, in_dim, product, x.data(), nullptr,
                    w.data(), nullptr, y.data());
}

void MlaCases(DeviceBenchmark& benchmark, int64_t num_rows) {
  constexpr int64_t kHeads = 128, kDim = 128, kRope = 64, kLatent = 512;
  const std::string shape = absl::StrCat("M=", num_rows, " 128 heads of 128");
  if (!benchmark.Wants("MlaAbsorbQuery", shape) && !benchmark.Wants("MlaUnabsorbOutput", shape)) return;
  const int64_t w_count = kHeads * kDim * kLatent, q_count = num_rows * kHeads * (kDim + kRope);
  const int64_t latent_count = num_rows * kHeads * kLatent, out_count = num_rows * kHeads * kDim;
  const int64_t bytes = (w_count + latent_count + out_count) * 2;
  const int num_sets = DeviceBenchmark::NumSets(bytes);
  const auto q = DeviceArray<Bf16>::Normal(benchmark, num_sets * q_count, 1);
  const auto w = DeviceArray<Bf16>::Normal(benchmark, num_sets * w_count, 0.02f);
  const auto latent = DeviceArray<Bf16>::Normal(benchmark, num_sets * latent_count, 1);
  BenchmarkCase product{.op = "MlaAbsorbQuery",
                        .shape = shape,
                        .bytes = static_cast<double>(bytes),
                        .flops = 2.0 * static_cast<double>(num_rows * w_count),
                        .tensor_rate = num_rows >= kHeavyRows ? TensorRate::kBf16 : TensorRate::kNone,
                        .num_sets = num_sets};
  product.launch = [&](Stream stream, int64_t set) {
    const Matrix<const Bf16> rows(q.data() + set * q_count, {num_rows, kHeads * (kDim + kRope)});
    return MlaAbsorbQuery(stream, {.q_nope = rows.SplitLast(kDim + kRope).Columns(0, kDim),
                                   .w_uk = {w.data() + set * w_count, {kHeads, kDim, kLatent}},
                                   .q_latent = {latent.data() + set * latent_count, {num_rows, kHeads, kLatent}}});
  };
  benchmark.Measure(product);
  product.op = "MlaUnabsorbOutput";
  product.launch = [&](Stream stream, int64_t set) {
    return MlaUnabsorbOutput(stream, {.latent_out = {latent.data() + set * latent_count, {num_rows, kHeads, kLatent}},
                                      .w_uv = {w.data() + set * w_count, {kHeads, kDim, kLatent}},
                                      .out = {q.data() + set * q_count, {num_rows, kHeads, kDim}}});
  };
  benchmark.Measure(product);
}

void Cases(DeviceBenchmark& benchmark) {
  struct Layer {
    int64_t out_dim, in_dim;
    int segments;
    const char* peers[5];  // DeepGEMM, best tile, burst: at 16, 64, 128, 512 and 4096 rows
  };
  const Layer layers[] = {
      {2112, 7168, 1, {"DeepGEMM 10.40 us", "DeepGEMM 9.52 us", "DeepGEMM 10.28 us", "", "DeepGEMM 92.4 us"}},
      {24576, 1536, 1, {"DeepGEMM 12.88 us", "DeepGEMM 13.69 us", "DeepGEMM 14.45 us", "", "DeepGEMM 233.5 us"}},
      {8192, 1536, 1, {"DeepGEMM 6.00 us", "DeepGEMM 5.88 us", "DeepGEMM 6.44 us", "", "DeepGEMM 80.3 us"}},
      {7168, 16384, 8, {"DeepGEMM 35.4 us", "DeepGEMM 32.9 us", "DeepGEMM 36.4 us", "", "DeepGEMM 652.4 us"}},
      {4096, 7168, 1, {"DeepGEMM 11.81 us", "DeepGEMM 11.11 us", "DeepGEMM 11.97 us", "", "DeepGEMM 166.3 us"}},
      {7168, 2048, 8, {"DeepGEMM 6.90 us", "DeepGEMM 6.61 us", "DeepGEMM 7.42 us", "", "DeepGEMM 90.9 us"}},
      {36864, 7168, 1, {"DeepGEMM 67.4 us", "DeepGEMM 68.3 us", "DeepGEMM 73.0 us", "", "DeepGEMM 1467 us"}},
  };
  const int64_t row_counts[] = {16, 64, 128, 512, 4096};
  for (const Layer& layer : layers) {
    Fp8Case(benchmark, 1, layer.out_dim, layer.in_dim, layer.segments, "");
    for (int i = 0; i < 5; ++i) {
      Fp8Case(benchmark, row_counts[i], layer.out_dim, layer.in_dim, layer.segments, layer.peers[i]);
    }
  }
  for (const int64_t rows : {1, 16, 64}) {
    Fp8Case(benchmark, rows, 576, 7168, 1, "");
    Fp8Case(benchmark, rows, 1536, 7168, 1, "");
  }
  for (const int64_t rows : {1, 16, 64, 128}) {
    const bool is_large = rows == 128;
    GroupedCase(benchmark, 8, rows, 4096, 7168, 1, is_large ? "DeepGEMM 71.2 us" : "DeepGEMM 61.4 us");
    GroupedCase(benchmark, 8, rows, 7168, 2048, 8, is_large ? "DeepGEMM 41.7 us" : "DeepGEMM 35.4 us");
  }
  GroupedCase(benchmark, 4, 8192, 4096, 7168, 1, "DeepGEMM 1345 us");
  GroupedCase(benchmark, 4, 8192, 7168, 2048, 8, "DeepGEMM 713 us");
  for (const int64_t rows : {1, 16, 64, 512}) {
    Bf16Case(benchmark, rows, 256, 7168);
    Bf16Case(benchmark, rows, 64, 7168);
  }
  for (const int64_t rows : {1, 64}) Bf16Case(benchmark, rows, 129280, 7168);
  for (const int64_t rows : {1, 16, 64, 128, 512}) MlaCases(benchmark, rows);
}

}  // namespace
}  // namespace tandem::kernels::cuda

int main(int argc, char** argv) {
  return tandem::kernels::cuda::DeviceBenchmarkMain(argc, argv, tandem::kernels::cuda::Cases);
}

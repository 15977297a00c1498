// Proves the linear layers of a device: close to the CPU's and to float64 at every shape of DeepSeek-V3.2 and at small
// odd ones; a row's bits are its own, whatever the batch, its order and its split by experts; nothing is written beyond
// the outputs; NaN stays in its row; bad views are refused by name.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/linear_device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"
#include "kernels/thread_pool.h"

namespace tandem::kernels::cuda {
namespace {

// An output may differ from the CPU's by one rounding to BF16 of itself and by the narrow sums of the tensor cores,
// which are relative to a typical output. The cosine is the specification's measure: d = 1 - cosine for close norms.
Tolerance LinearTolerance(Tensor<Bf16, 2>& expected) {
  double squares = 0;
  for (const Bf16 value : expected.values()) {
    if (std::isfinite(ToFloat(value))) squares += double{ToFloat(value)} * ToFloat(value);
  }
  const double rms = std::sqrt(squares / static_cast<double>(std::max<int64_t>(expected.size(), 1)));
  return {.abs = 4e-3 * rms, .rel = 0x1p-7, .min_cosine = 1 - 1e-5};
}

ThreadPool& HostThreads() {
  static ThreadPool* const threads = new ThreadPool(NumUsableProcessors());
  return *threads;
}

struct Fp8Problem {
  Fp8Problem(uint32_t seed, int64_t rows, int64_t out_dim, int64_t in_dim, ScaleFormat format = ScaleFormat::kUe8m0,
             int segments = 1)
      : source(seed),
        format(format),
        segments(segments),
        x(source.NormalE4m3<2>({rows, in_dim})),
        x_scale(source.Scales({rows, in_dim / 128}, format)),
        weight(source.NormalE4m3<2>({out_dim, in_dim})),
        w_scale(source.Scales({(out_dim + 127) / 128, in_dim / 128}, format)) {}

  Tensor<Bf16, 2> OnHost(const std::vector<int32_t>& rows) {
    Tensor<E4m3, 2> picked = PickRows(x, rows);
    Tensor<float, 2> picked_scale = PickRows(x_scale, rows);
    Tensor<Bf16, 2> y({picked.dim(0), weight.dim(0)});
    OpWorkspace workspace(Fp8LinearWorkspaceBytes(picked.dim(0), picked.dim(1)));
    EXPECT_TRUE(kernels::Fp8Linear({.x = picked,
                                    .x_scale = picked_scale,
                                    .weight = {weight, w_scale},
                                    .k_segments = segments,
                                    .y = y,
                                    .scale_format = format,
                                    .workspace = workspace.span(),
                                    .threads = &HostThreads()})
                    .ok());
    return y;
  }
  std::vector<double> Exact(const std::vector<int32_t>& rows) {
    std::vector<double> exact(rows.size() * static_cast<size_t>(weight.dim(0)));
    HostThreads().Run(static_cast<int64_t>(exact.size()), [&](int64_t i) {
      const int64_t m = rows[static_cast<size_t>(i / weight.dim(0))], n = i % weight.dim(0);
      double sum = 0;
      for (int64_t k = 0; k < x.dim(1); ++k) {
        sum += double{ToFloat(x.at(m, k))} * ToFloat(weight.at(n, k)) * x_scale.at(m, k / 128) *
               w_scale.at(n / 128, k / 128);
      }
      exact[static_cast<size_t>(i)] = sum;
    });
    return exact;
  }

  FastSource source;
  ScaleFormat format;
  int segments;
  Tensor<E4m3, 2> x;
  Tensor<float, 2> x_scale;
  Tensor<E4m3, 2> weight;
  Tensor<float, 2> w_scale;
};

// `count` of `num_rows` rows, first and last among them.
std::vector<int32_t> Spread(int64_t num_rows, int64_t count) {
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < std::min(count, num_rows); ++i) {
    rows.push_back(static_cast<int32_t>(count >= num_rows ? i : i * (num_rows - 1) / (count - 1)));
  }
  return rows;
}

std::vector<int32_t> FirstRows(int64_t begin, int64_t count) {
  std::vector<int32_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), static_cast<int32_t>(begin));
  return rows;
}

// A problem with its operands on the device.
struct DeviceFp8Problem {
  DeviceTensor<E4m3, 2> x;
  DeviceTensor<float, 2> x_scale;
  DeviceTensor<E4m3, 2> weight;
  DeviceTensor<float, 2> w_scale;
};

class LinearDeviceTest : public DeviceTest {
 protected:
  DeviceFp8Problem UploadAll(Fp8Problem& problem) {
    return {Upload(problem.x), Upload(problem.x_scale), Upload(problem.weight), Upload(problem.w_scale)};
  }
  Tensor<Bf16, 2> OnDevice(const Fp8Problem& problem, const Matrix<const E4m3>& x, const Matrix<const float>& x_scale,
                           const DeviceFp8Problem& device) {
    DeviceTensor<Bf16, 2> y = Output<Bf16, 2>({x.shape[0], device.weight.view().shape[0]});
    RunOp(Fp8Linear(stream(), {.x = x,
                               .x_scale = x_scale,
                               .weight = {device.weight, device.w_scale},
                               .k_segments = problem.segments,
                               .y = y,
                               .scale_format = problem.format}));
    return y.Download();
  }
  // Rows [begin, begin + count) alone.
  Tensor<Bf16, 2> RowsOnDevice(const Fp8Problem& problem, const DeviceFp8Problem& device, int64_t begin,
                               int64_t count) {
    return OnDevice(problem, device.x.view().Slice(begin, count), device.x_scale.view().Slice(begin, count), device);
  }

  void CheckFp8(int64_t max_rows, int64_t out_dim, int64_t in_dim, int segments, ScaleFormat format,
                const std::vector<int64_t>& row_counts) {
    const std::string what = absl::StrCat("Fp8Linear ", out_dim, "x", in_dim, " S=", segments,
                                          format == ScaleFormat::kUe8m0 ? "" : " float32 scales");
    Fp8Problem problem(static_cast<uint32_t>(out_dim + in_dim), max_rows, out_dim, in_dim, format, segments);
    DeviceFp8Problem device = UploadAll(problem);
    Tensor<Bf16, 2> all = RowsOnDevice(problem, device, 0, max_rows);
    const std::vector<int32_t> rows = Spread(max_rows, 12);
    Tensor<Bf16, 2> expected = problem.OnHost(rows);
    ExpectClose(absl::StrCat(what, " M=", max_rows, " against the CPU"), PickRows(all, rows), expected,
                LinearTolerance(expected));
    for (const int64_t count : row_counts) {
      Tensor<Bf16, 2> part = PickRows(all, FirstRows(max_rows - count, count));
      ExpectSameBits(absl::StrCat(what, " the last ", count, " rows alone"),
                     RowsOnDevice(problem, device, max_rows - count, count), part);
    }
    const std::vector<int32_t> order = problem.source.source().Permutation(static_cast<int>(max_rows));
    Tensor<E4m3, 2> x = PickRows(problem.x, order);
    Tensor<float, 2> x_scale = PickRows(problem.x_scale, order);
    DeviceTensor<E4m3, 2> device_x = Upload(x);
    DeviceTensor<float, 2> device_scale = Upload(x_scale);
    Tensor<Bf16, 2> permuted = PickRows(all, order);
    ExpectSameBits(absl::StrCat(what, " in another order"), OnDevice(problem, device_x, device_scale, device),
                   permuted);
  }
};

TEST_F(LinearDeviceTest, Fp8OfSmallAndOddShapes) {
  const std::vector<int64_t> counts = {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 128, 129, 255};
  for (const ScaleFormat format : {ScaleFormat::kUe8m0, ScaleFormat::kFloat32}) {
    CheckFp8(300, 1, 128, 1, format, counts);
    CheckFp8(300, 63, 128, 1, format, counts);
    CheckFp8(300, 129, 384, 1, format, counts);
    CheckFp8(300, 250, 640, 1, format, counts);
    CheckFp8(300, 576, 384, 1, format, counts);  // tandem-tiny: latent, rotary key and query
    CheckFp8(300, 256, 384, 1, format, counts);
    CheckFp8(300, 1536, 256, 1, format, counts);
    CheckFp8(300, 384, 1024, 8, format, counts);  // output, down
    CheckFp8(300, 384, 256, 2, format, counts);
    CheckFp8(300, 100, 512, 4, format, counts);
    CheckFp8(300, 384, 128, 1, format, counts);
  }
}

// Every path in little work: for racecheck.
TEST_F(LinearDeviceTest, SmallCases) {
  CheckFp8(70, 250, 1024, 1, ScaleFormat::kFloat32, {1, 17});  // a cluster shares the sum
  CheckFp8(70, 700, 384, 1, ScaleFormat::kUe8m0, {1, 17});
  CheckFp8(70, 130, 2048, 8, ScaleFormat::kUe8m0, {1, 17});
}

TEST_F(LinearDeviceTest, Fp8OfTheModelsShapes) {
  const std::vector<int64_t> counts = {1, 2, 3, 7, 8, 16, 33, 64, 100, 128, 300};
  for (const auto& [out_dim, in_dim, segments] : std::vector<std::array<int64_t, 3>>{{2112, 7168, 1},
                                                                                     {1536, 7168, 1},
                                                                                     {576, 7168, 1},
                                                                                     {24576, 1536, 1},
                                                                                     {8192, 1536, 1},
                                                                                     {2048, 7168, 1},
                                                                                     {4096, 7168, 1},
                                                                                     {7168, 2048, 8},
                                                                                     {7168, 16384, 8},
                                                                                     {18432, 7168, 1},
                                                                                     {7168, 18432, 8}}) {
    CheckFp8(512, out_dim, in_dim, static_cast<int>(segments), ScaleFormat::kUe8m0, counts);
  }
  CheckFp8(512, 2112, 7168, 1, ScaleFormat::kFloat32, counts);
  CheckFp8(512, 7168, 2048, 8, ScaleFormat::kFloat32, counts);
  CheckFp8(4096, 2112, 7168, 1, ScaleFormat::kUe8m0, {1, 300, 2048});
}

TEST_F(LinearDeviceTest, Fp8IsWithinTheSpecifiedDistanceOfFloat64) {
  for (const ScaleFormat format : {ScaleFormat::kUe8m0, ScaleFormat::kFloat32}) {
    for (const auto& [out_dim, in_dim, segments] :
         std::vector<std::array<int64_t, 3>>{{2112, 7168, 1}, {512, 18432, 8}, {640, 128, 1}}) {
      Fp8Problem problem(5, 64, out_dim, in_dim, format, static_cast<int>(segments));
      DeviceFp8Problem device = UploadAll(problem);
      Tensor<Bf16, 2> all = RowsOnDevice(problem, device, 0, 64);
      const std::vector<int32_t> rows = Spread(64, 4);
      Tensor<Bf16, 2> picked = PickRows(all, rows), on_host = problem.OnHost(rows);
      const std::vector<double> exact = problem.Exact(rows);
      std::vector<double> rounded;
      for (const double value : exact) rounded.push_back(ToFloat(ToBf16(static_cast<float>(value))));
      const double distance = Difference(ToDoubles(picked), exact);
      std::printf(
          "MEASURED Fp8Linear %dx%d: d to float64 %.3g (CPU %.3g, float64 rounded to BF16 %.3g), to the CPU %.3g\n",
          static_cast<int>(out_dim), static_cast<int>(in_dim), distance, Difference(ToDoubles(on_host), exact),
          Difference(rounded, exact), Difference(ToDoubles(picked), ToDoubles(on_host)));
      EXPECT_LT(distance, 1e-5);
    }
  }
}

// Products of very different sizes within a block: where the tensor cores' sums are at their worst.
TEST_F(LinearDeviceTest, Fp8HoldsWhereProductsCancel) {
  Fp8Problem problem(7, 16, 256, 512);
  for (int64_t m = 0; m < 16; ++m) {
    for (int64_t k = 0; k < 512; k += 2) problem.x.at(m, k + 1) = E4m3{uint8_t(problem.x.at(m, k).bits ^ 0x80u)};
  }
  for (int64_t n = 0; n < 256; ++n) {
    for (int64_t k = 0; k < 512; k += 2) problem.weight.at(n, k + 1) = problem.weight.at(n, k);
    problem.weight.at(n, 511) = E4m3{0x30};
  }
  DeviceFp8Problem device = UploadAll(problem);
  Tensor<Bf16, 2> y = RowsOnDevice(problem, device, 0, 16);
  const std::vector<double> exact = problem.Exact(FirstRows(0, 16));
  // Of a block's 64 pairs: products up to 448 * 448 of which the tensor cores keep at least 13 bits.
  double worst = 0;
  for (int64_t m = 0; m < 16; ++m) {
    for (int64_t n = 0; n < 256; ++n) {
      double largest = 0;
      for (int64_t k = 0; k < 512; ++k) {
        largest = std::max(largest, std::abs(double{ToFloat(problem.x.at(m, k))} * ToFloat(problem.weight.at(n, k)) *
                                             problem.x_scale.at(m, k / 128) * problem.w_scale.at(n / 128, k / 128)));
      }
      const double error = std::abs(ToFloat(y.at(m, n)) - exact[static_cast<size_t>(m * 256 + n)]);
      worst = std::max(worst, error / largest);
    }
  }
  std::printf("MEASURED Fp8Linear cancelling: worst error %.3g of the largest product\n", worst);
  EXPECT_LT(worst, 128 * 0x1p-12);
}

TEST_F(LinearDeviceTest, Fp8TakesStridedViews) {
  Fp8Problem problem(11, 37, 200, 384);
  DeviceTensor<E4m3, 2> x = Upload(problem.x, {.row_gap = 32, .offset = 16});
  DeviceTensor<float, 2> x_scale = Upload(problem.x_scale, {.row_gap = 5, .offset = 1});
  DeviceTensor<E4m3, 2> weight = Upload(problem.weight, {.row_gap = 16, .offset = 48});
  DeviceTensor<float, 2> w_scale = Upload(problem.w_scale, {.row_gap = 3, .offset = 3});
  Tensor<Bf16, 2> expected = problem.OnHost(FirstRows(0, 37));
  for (const Placement& placement :
       {Placement{.row_gap = 8}, Placement{.row_gap = 7, .offset = 1}, Placement{.row_gap = 1, .offset = 3}}) {
    DeviceTensor<Bf16, 2> y = Output<Bf16, 2>({37, 200}, placement);
    RunOp(Fp8Linear(stream(), {.x = x, .x_scale = x_scale, .weight = {weight, w_scale}, .y = y}));
    ExpectClose(absl::StrCat("Fp8Linear 200x384 rows ", placement.row_gap, " apart"), y.Download(), expected,
                LinearTolerance(expected));
  }
}

TEST_F(LinearDeviceTest, NanStaysInItsRow) {
  Fp8Problem problem(13, 70, 160, 256);
  DeviceFp8Problem device = UploadAll(problem);
  Tensor<Bf16, 2> expected = RowsOnDevice(problem, device, 0, 70);
  problem.x.at(33, 200) = E4m3{0x7f};
  device.x.Upload(problem.x);
  for (int64_t n = 0; n < 160; ++n) expected.at(33, n) = Bf16{0x7fc0};
  ExpectSameBits("Fp8Linear with NaN in row 33", RowsOnDevice(problem, device, 0, 70), expected);
}

struct GroupedProblem {
  int64_t out_dim, in_dim, num_x_rows;
  std::vector<int32_t> offsets;
  int segments = 1;
  bool has_x_rows = true;
  ScaleFormat format = ScaleFormat::kUe8m0;
};

class GroupedLinearDeviceTest : public LinearDeviceTest {
 protected:
  // Every pair has the bits of Fp8Linear with its expert's weight.
  void Check(const GroupedProblem& grouped) {
    const auto num_groups = static_cast<int64_t>(grouped.offsets.size()) - 1;
    const int64_t num_pairs = grouped.offsets.back();
    const std::string what = absl::StrCat("Fp8GroupedLinear ", num_groups, " of ", grouped.out_dim, "x", grouped.in_dim,
                                          " S=", grouped.segments, ", ", num_pairs, " pairs");
    // All experts' weights are one matrix, one below the other.
    const int64_t scale_rows = (grouped.out_dim + 127) / 128;
    FastSource source(static_cast<uint32_t>(num_pairs + grouped.out_dim));
    Tensor<E4m3, 3> weight = source.NormalE4m3<3>({num_groups, grouped.out_dim, grouped.in_dim});
    Tensor<float, 2> w_scale = source.Scales({num_groups * scale_rows, grouped.in_dim / 128}, grouped.format);
    Tensor<E4m3, 2> x = source.NormalE4m3<2>({grouped.num_x_rows, grouped.in_dim});
    Tensor<float, 2> x_scale = source.Scales({grouped.num_x_rows, grouped.in_dim / 128}, grouped.format);
    Tensor<int32_t, 1> offsets({num_groups + 1}), x_rows({num_pairs});
    offsets.values() = grouped.offsets;
    for (int64_t pair = 0; pair < num_pairs; ++pair) {
      x_rows[pair] = grouped.has_x_rows ? static_cast<int32_t>(source.source().Below(grouped.num_x_rows))
                                        : static_cast<int32_t>(pair);
    }
    DeviceTensor<E4m3, 3> device_weight = Upload(weight);
    DeviceTensor<float, 2> device_w_scale = Upload(w_scale);
    DeviceTensor<E4m3, 2> device_x = Upload(x);
    DeviceTensor<float, 2> device_x_scale = Upload(x_scale);
    DeviceTensor<int32_t, 1> device_offsets = Upload(offsets), device_x_rows = Upload(x_rows);
    std::vector<Fp8Weight> weights;
    for (int64_t g = 0; g < num_groups; ++g) {
      weights.push_back({device_weight.view().At(g), device_w_scale.view().Slice(g * scale_rows, scale_rows)});
    }
    DeviceTensor<Bf16, 2> y = Output<Bf16, 2>({num_pairs, grouped.out_dim}, {.row_gap = 8});
    RunOp(Fp8GroupedLinear(
        stream(), {.x = device_x,
                   .x_scale = device_x_scale,
                   .x_rows = grouped.has_x_rows ? Vector<const int32_t>(device_x_rows) : Vector<const int32_t>(),
                   .group_offsets = device_offsets,
                   .weights = weights,
                   .k_segments = grouped.segments,
                   .y = y,
                   .scale_format = grouped.format}));
    Tensor<Bf16, 2> actual = y.Download();
    Tensor<Bf16, 2> expected({num_pairs, grouped.out_dim});
    Tensor<E4m3, 2> pair_x = PickRows(x, x_rows.values());
    Tensor<float, 2> pair_scale = PickRows(x_scale, x_rows.values());
    DeviceTensor<E4m3, 2> device_pair_x = Upload(pair_x);
    DeviceTensor<float, 2> device_pair_scale = Upload(pair_scale);
    DeviceTensor<Bf16, 2> alone = Output<Bf16, 2>({num_pairs, grouped.out_dim});
    for (int64_t g = 0; g < num_groups; ++g) {
      const int64_t begin = grouped.offsets[static_cast<size_t>(g)];
      const int64_t count = grouped.offsets[static_cast<size_t>(g) + 1] - begin;
      RunOp(Fp8Linear(stream(), {.x = device_pair_x.view().Slice(begin, count),
                                 .x_scale = device_pair_scale.view().Slice(begin, count),
                                 .weight = weights[static_cast<size_t>(g)],
                                 .k_segments = grouped.segments,
                                 .y = alone.view().Slice(begin, count),
                                 .scale_format = grouped.format}));
    }
    expected = alone.Download();
    ExpectSameBits(what, std::move(actual), expected);
  }
};

TEST_F(GroupedLinearDeviceTest, SmallCases) {
  Check({.out_dim = 96, .in_dim = 256, .num_x_rows = 9, .offsets = {0, 40, 40, 43, 50}, .segments = 2});
  Check({.out_dim = 96, .in_dim = 256, .num_x_rows = 50, .offsets = {0, 40, 40, 43, 50}, .has_x_rows = false});
}

TEST_F(GroupedLinearDeviceTest, GivesEachPairTheBitsOfItsExpertsLinear) {
  Check({.out_dim = 96, .in_dim = 256, .num_x_rows = 9, .offsets = {0, 40, 40, 43, 50}, .segments = 2});
  Check({.out_dim = 96, .in_dim = 256, .num_x_rows = 50, .offsets = {0, 40, 40, 43, 50}, .has_x_rows = false});
  Check({.out_dim = 96, .in_dim = 256, .num_x_rows = 9, .offsets = {0, 0, 0, 0, 0}});
  Check({.out_dim = 100, .in_dim = 384, .num_x_rows = 9, .offsets = {0, 130}});
  Check({.out_dim = 129,
         .in_dim = 128,
         .num_x_rows = 300,
         .offsets = {0, 0, 1, 64, 128, 129, 193, 300, 300},
         .format = ScaleFormat::kFloat32});
  Check({.out_dim = 7168,
         .in_dim = 2048,
         .num_x_rows = 128,
         .offsets = {0, 16, 32, 48, 64, 80, 96, 112, 128},
         .segments = 8,
         .has_x_rows = false});
  Check({.out_dim = 4096, .in_dim = 7168, .num_x_rows = 64, .offsets = {0, 1, 1, 200, 512}});
  std::vector<int32_t> offsets = {0};  // 256 experts, a few tokens each, most with none
  FastSource source(3);
  for (int g = 0; g < 256; ++g) {
    offsets.push_back(offsets.back() + static_cast<int32_t>(std::max<int64_t>(0, source.source().Below(6) - 3)));
  }
  Check({.out_dim = 256, .in_dim = 384, .num_x_rows = 64, .offsets = offsets});
}

class Bf16LinearDeviceTest : public DeviceTest {
 protected:
  template <typename T>
  Tensor<T, 2> Run(const Matrix<const Bf16>& x, const Matrix<const Bf16>& weight, int segments) {
    DeviceTensor<T, 2> y = Output<T, 2>({x.shape[0], weight.shape[0]});
    if constexpr (std::is_same_v<T, float>) {
      RunOp(Bf16LinearF32(stream(), {.x = x, .weight = weight, .y = y}));
    } else {
      RunOp(Bf16Linear(stream(), {.x = x, .weight = weight, .k_segments = segments, .y = y}));
    }
    return y.Download();
  }
  template <typename T>
  Tensor<T, 2> OnHost(Tensor<Bf16, 2> x, Tensor<Bf16, 2>& weight, int segments) {
    Tensor<T, 2> y({x.dim(0), weight.dim(0)});
    absl::Status status;
    if constexpr (std::is_same_v<T, float>) {
      status = kernels::Bf16LinearF32({.x = x, .weight = weight, .y = y, .threads = &HostThreads()});
    } else {
      status =
          kernels::Bf16Linear({.x = x, .weight = weight, .k_segments = segments, .y = y, .threads = &HostThreads()});
    }
    EXPECT_TRUE(status.ok()) << status;
    return y;
  }
  template <typename T>
  void Check(int64_t max_rows, int64_t out_dim, int64_t in_dim, int segments, const std::vector<int64_t>& counts) {
    const std::string what = absl::StrCat(std::is_same_v<T, float> ? "Bf16LinearF32 " : "Bf16Linear ", out_dim, "x",
                                          in_dim, " S=", segments);
    FastSource source(static_cast<uint32_t>(out_dim + in_dim));
    Tensor<Bf16, 2> x = source.NormalBf16<2>({max_rows, in_dim}), weight = source.NormalBf16<2>({out_dim, in_dim});
    DeviceTensor<Bf16, 2> device_x = Upload(x), device_weight = Upload(weight);
    Tensor<T, 2> all = Run<T>(device_x, device_weight, segments);
    const std::vector<int32_t> rows = Spread(max_rows, 8);
    Tensor<T, 2> expected = OnHost<T>(PickRows(x, rows), weight, segments);
    const double size = std::sqrt(static_cast<double>(in_dim));  // of an output
    // FP32: the tensor cores cut what they add to about 2^-22 of the largest term; four instructions to a sum of 64.
    const Tolerance tolerance = std::is_same_v<T, float>
                                    ? Tolerance{.abs = 2e-6 * size, .rel = 1e-5, .min_cosine = 1 - 1e-9}
                                    : Tolerance{.abs = 1e-5 * size, .rel = 0x1p-7, .min_cosine = 1 - 1e-5};
    ExpectClose(absl::StrCat(what, " M=", max_rows, " against the CPU"), PickRows(all, rows), expected, tolerance);
    for (const int64_t count : counts) {
      Tensor<T, 2> part = PickRows(all, FirstRows(max_rows - count, count));
      ExpectSameBits(absl::StrCat(what, " the last ", count, " rows alone"),
                     Run<T>(device_x.view().Slice(max_rows - count, count), device_weight, segments), part);
    }
  }
};

TEST_F(Bf16LinearDeviceTest, IsCloseToTheCpuAndARowsBitsAreItsOwn) {
  const std::vector<int64_t> counts = {0, 1, 2, 3, 7, 8, 16, 33, 64, 100, 128, 300};
  for (const auto& [out_dim, in_dim] : std::vector<std::array<int64_t, 2>>{
           {1, 16}, {63, 48}, {129, 80}, {256, 7168}, {64, 7168}, {16, 384}, {4, 384}, {2560, 384}}) {
    Check<float>(300, out_dim, in_dim, 1, counts);
    Check<Bf16>(300, out_dim, in_dim, 1, counts);
  }
  Check<Bf16>(300, 7168, 14336, 1, {1, 16, 64});
  Check<Bf16>(300, 384, 1024, 8, counts);
  Check<Bf16>(300, 100, 2048, 4, counts);
  Check<float>(64, 129280, 7168, 1, {1, 2, 16});
}

TEST_F(Bf16LinearDeviceTest, TakesStridedViews) {
  FastSource source(1);
  Tensor<Bf16, 2> x = source.NormalBf16<2>({37, 144}), weight = source.NormalBf16<2>({70, 144});
  DeviceTensor<Bf16, 2> device_x = Upload(x, {.row_gap = 24, .offset = 8});
  DeviceTensor<Bf16, 2> device_weight = Upload(weight, {.row_gap = 8, .offset = 16});
  Tensor<float, 2> expected = OnHost<float>(PickRows(x, FirstRows(0, 37)), weight, 1);
  for (const Placement& placement : {Placement{.row_gap = 2}, Placement{.row_gap = 5, .offset = 1}}) {
    DeviceTensor<float, 2> y = Output<float, 2>({37, 70}, placement);
    RunOp(Bf16LinearF32(stream(), {.x = device_x, .weight = device_weight, .y = y}));
    ExpectClose("Bf16LinearF32 70x144, strided", y.Download(), expected, {.abs = 5e-5, .rel = 1e-5});
  }
}

TEST_F(Bf16LinearDeviceTest, NanAndInfinityStayInTheirRows) {
  FastSource source(2);
  Tensor<Bf16, 2> x = source.NormalBf16<2>({66, 256}), weight = source.NormalBf16<2>({70, 256});
  for (Bf16& value : weight.values()) value.bits &= 0x7fff;
  DeviceTensor<Bf16, 2> device_x = Upload(x), device_weight = Upload(weight);
  Tensor<float, 2> expected = Run<float>(device_x, device_weight, 1);
  x.at(1, 3) = ToBf16(std::numeric_limits<float>::quiet_NaN());
  x.at(65, 255) = ToBf16(-std::numeric_limits<float>::infinity());
  device_x.Upload(x);
  for (int64_t n = 0; n < 70; ++n) {
    expected.at(1, n) = std::numeric_limits<float>::quiet_NaN();
    expected.at(65, n) =
        weight.at(n, 255).bits == 0 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
  }
  ExpectSameBits("Bf16LinearF32 with NaN in row 1 and -inf in row 65", Run<float>(device_x, device_weight, 1),
                 expected);
}

// What is refused is refused before the launch: this needs no device.
class LinearBorderTest : public testing::Test {
 protected:
  void SetUp() override {
    if (absl::IsUnimplemented(Fp8Linear(nullptr, {}))) GTEST_SKIP() << "this build has no CUDA";
  }
  FastSource source_{1};
  Tensor<E4m3, 2> x_ = source_.NormalE4m3<2>({2, 272});
  Tensor<float, 2> x_scale_{{2, 2}};
  Tensor<E4m3, 2> weight_ = source_.NormalE4m3<2>({128, 256});
  Tensor<float, 2> w_scale_{{1, 2}};
  Tensor<Bf16, 2> y_{{2, 64}};
  absl::Status Run(const Matrix<const E4m3>& x, const Matrix<const E4m3>& weight, const Matrix<Bf16>& y) {
    return Fp8Linear(nullptr, {.x = x, .x_scale = x_scale_, .weight = {weight, w_scale_}, .y = y});
  }
};

TEST_F(LinearBorderTest, RefusesByName) {
  const Matrix<const E4m3> x = x_.view().Columns(0, 256), weight = weight_.view().Slice(0, 64);
  EXPECT_EQ(Run(x, weight, y_.view().Columns(0, 63)).message(), "Fp8Linear: y is [2, 63], must be [2, 64]");
  EXPECT_EQ(Run(x_.view().Columns(0, 16), weight, y_).message(),
            "Fp8Linear: in_dim is 16, must be a positive multiple of 128");
  const auto misplaced = static_cast<int64_t>(reinterpret_cast<uintptr_t>(x_.values().data() + 1) % 16);
  EXPECT_EQ(Run(x_.view().Columns(1, 256), weight, y_).message(),
            absl::StrCat("Fp8Linear: x address modulo 16 is ", misplaced, ", must be 0"));
  Matrix<const E4m3> narrow = x;
  narrow.strides[0] = 264;
  EXPECT_EQ(Run(narrow, weight, y_).message(), "Fp8Linear: x row stride in bytes is 264, must be a multiple of 16");
}

TEST_F(LinearBorderTest, RefusesExpertsAtUnequalDistances) {
  const Matrix<const E4m3> x = x_.view().Columns(0, 256);
  Tensor<int32_t, 1> offsets({4});
  const auto run = [&](const std::vector<Fp8Weight>& weights) {
    return std::string(
        Fp8GroupedLinear(nullptr, {.x = x, .x_scale = x_scale_, .group_offsets = offsets, .weights = weights, .y = y_})
            .message());
  };
  const auto rows_from = [&](int64_t begin) { return Fp8Weight{weight_.view().Slice(begin, 64), w_scale_}; };
  EXPECT_EQ(run({rows_from(0), rows_from(16), rows_from(48)}),
            "Fp8GroupedLinear: group is 2, must be as far from the one before as the second is from the first");
  EXPECT_EQ(run({}), "Fp8GroupedLinear: weights is 0, must be 1 to 1024");
}

}  // namespace
}  // namespace tandem::kernels::cuda

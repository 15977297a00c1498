// The norms on the device against the CPU's: at most one BF16 value apart, nearly all equal; and a row's bits are its
// own, whatever the batch.
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {
namespace {

constexpr Placement kPlacements[] = {{}, {.row_gap = 8}, {.row_gap = 3, .offset = 1}};
// The sum's order moves the result by far less than a rounding boundary is wide: few values lie so near to one.
constexpr Tolerance kTolerance = {.max_ulp = 1, .max_different_share = 0.005};
constexpr int64_t kDims[] = {16, 48, 128, 512, 1536, 4096, 4112, 7168, 18432, 32768};

class NormDeviceTest : public DeviceTest {
 protected:
  Tensor<Bf16, 2> RunRmsNorm(Tensor<Bf16, 2>& x, Tensor<Bf16, 1>& weight, const Placement& placement = {}) {
    auto device_x = Upload(x, placement);
    auto device_weight = Upload(weight, {.offset = placement.offset});
    auto y = Output<Bf16, 2>({x.dim(0), x.dim(1)}, placement);
    RunOp(RmsNorm(stream(), {.x = device_x, .weight = device_weight, .eps = 1e-6f, .y = y}));
    return y.Download();
  }
  // Residual first, then y.
  std::pair<Tensor<Bf16, 2>, Tensor<Bf16, 2>> RunAddRmsNorm(Tensor<Bf16, 2>& x, Tensor<Bf16, 2>& residual,
                                                            Tensor<Bf16, 1>& weight, const Placement& placement = {}) {
    auto device_x = Upload(x, placement);
    auto device_residual = Upload(residual, placement);
    auto device_weight = Upload(weight);
    // In place, as the model runs it.
    RunOp(AddRmsNorm(stream(), {.x = device_x,
                                .residual = device_residual,
                                .weight = device_weight,
                                .eps = 1e-6f,
                                .y = device_x,
                                .residual_out = device_residual}));
    return {device_residual.Download(), device_x.Download()};
  }
  Tensor<Bf16, 2> RunLayerNorm(Tensor<Bf16, 2>& x, Tensor<float, 1>& weight, Tensor<float, 1>& bias,
                               const Placement& placement = {}) {
    auto device_x = Upload(x, placement);
    auto device_weight = Upload(weight, {.offset = placement.offset});
    auto device_bias = Upload(bias);
    auto y = Output<Bf16, 2>({x.dim(0), x.dim(1)}, placement);
    RunOp(LayerNorm(stream(), {.x = device_x, .weight = device_weight, .bias = device_bias, .eps = 1e-6f, .y = y}));
    return y.Download();
  }
};

std::string Case(absl::string_view op, const Placement& placement) {
  return absl::StrCat(op, " gap ", placement.row_gap, " offset ", placement.offset);
}

TEST_F(NormDeviceTest, RmsNormIsTheCpus) {
  Source source(1);
  for (const int64_t dim : kDims) {
    Tensor<Bf16, 1> weight = source.NormalBf16<1>({dim});
    for (const int64_t num_rows : {0, 1, 65}) {
      Tensor<Bf16, 2> x = source.NormalBf16<2>({num_rows, dim}, 3);
      Tensor<Bf16, 2> expected({num_rows, dim});
      ASSERT_TRUE(kernels::RmsNorm({.x = x, .weight = weight, .eps = 1e-6f, .y = expected}).ok());
      for (const Placement& placement : kPlacements) {
        ExpectClose(Case("RmsNorm", placement), RunRmsNorm(x, weight, placement), expected, kTolerance);
      }
    }
  }
}

TEST_F(NormDeviceTest, AddRmsNormIsTheCpus) {
  Source source(2);
  for (const int64_t dim : kDims) {
    Tensor<Bf16, 1> weight = source.NormalBf16<1>({dim});
    for (const int64_t num_rows : {0, 1, 65}) {
      Tensor<Bf16, 2> x = source.NormalBf16<2>({num_rows, dim}), residual = source.NormalBf16<2>({num_rows, dim}, 4);
      Tensor<Bf16, 2> expected_y({num_rows, dim}), expected_residual({num_rows, dim});
      ASSERT_TRUE(kernels::AddRmsNorm({.x = x,
                                       .residual = residual,
                                       .weight = weight,
                                       .eps = 1e-6f,
                                       .y = expected_y,
                                       .residual_out = expected_residual})
                      .ok());
      for (const Placement& placement : kPlacements) {
        auto [residual_out, y] = RunAddRmsNorm(x, residual, weight, placement);
        ExpectSameBits(Case("AddRmsNorm residual", placement), residual_out, expected_residual);
        ExpectClose(Case("AddRmsNorm y", placement), y, expected_y, kTolerance);
      }
    }
  }
}

TEST_F(NormDeviceTest, LayerNormIsTheCpus) {
  Source source(3);
  for (const int64_t dim : kDims) {
    Tensor<float, 1> weight = source.NormalF32<1>({dim}), bias = source.NormalF32<1>({dim});
    for (const int64_t num_rows : {0, 1, 65}) {
      Tensor<Bf16, 2> x = source.NormalBf16<2>({num_rows, dim}, 2);
      Tensor<Bf16, 2> expected({num_rows, dim});
      ASSERT_TRUE(kernels::LayerNorm({.x = x, .weight = weight, .bias = bias, .eps = 1e-6f, .y = expected}).ok());
      for (const Placement& placement : kPlacements) {
        // Where the bias nearly cancels the rest a rounding more is many BF16 values of a tiny result.
        ExpectClose(Case("LayerNorm", placement), RunLayerNorm(x, weight, bias, placement), expected,
                    {.abs = 1e-6, .rel = 0x1p-7, .max_different_share = 0.005});
      }
    }
  }
}

TEST_F(NormDeviceTest, ARowsBitsAreItsOwn) {
  Source source(4);
  for (const int64_t dim : {128, 1536, 7168}) {
    Tensor<Bf16, 1> weight = source.NormalBf16<1>({dim});
    Tensor<float, 1> norm_weight = source.NormalF32<1>({dim}), bias = source.NormalF32<1>({dim});
    Tensor<Bf16, 2> x = source.NormalBf16<2>({300, dim}), residual = source.NormalBf16<2>({300, dim});
    Tensor<Bf16, 2> rms = RunRmsNorm(x, weight), layer = RunLayerNorm(x, norm_weight, bias);
    auto [added, added_y] = RunAddRmsNorm(x, residual, weight);
    for (const int count : {1, 2, 17, 300}) {
      std::vector<int32_t> order = source.Permutation(300);
      order.resize(static_cast<size_t>(count));
      Tensor<Bf16, 2> some = PickRows(x, order), some_residual = PickRows(residual, order);
      Tensor<Bf16, 2> expected_rms = PickRows(rms, order), expected_layer = PickRows(layer, order);
      Tensor<Bf16, 2> expected_y = PickRows(added_y, order);
      ExpectSameBytes(absl::StrCat("RmsNorm rows ", count), RunRmsNorm(some, weight, kPlacements[2]), expected_rms);
      ExpectSameBytes(absl::StrCat("LayerNorm rows ", count), RunLayerNorm(some, norm_weight, bias, kPlacements[2]),
                      expected_layer);
      ExpectSameBytes(absl::StrCat("AddRmsNorm rows ", count), RunAddRmsNorm(some, some_residual, weight).second,
                      expected_y);
    }
  }
}

TEST_F(NormDeviceTest, NanAndInfinityStayInTheirRow) {
  Source source(5);
  Tensor<Bf16, 2> x = source.NormalBf16<2>({4, 512});
  Tensor<Bf16, 1> weight = source.NormalBf16<1>({512});
  x.at(1, 17) = Bf16{0x7fc0};
  x.at(2, 300) = Bf16{0x7f80};
  for (int64_t k = 0; k < 512; ++k) x.at(3, k) = Bf16{static_cast<uint16_t>(k % 2 == 0 ? 0 : 0x8000)};  // zeros
  Tensor<Bf16, 2> expected({4, 512});
  ASSERT_TRUE(kernels::RmsNorm({.x = x, .weight = weight, .eps = 1e-6f, .y = expected}).ok());
  ExpectClose("RmsNorm NaN", RunRmsNorm(x, weight), expected, kTolerance);
}

TEST_F(NormDeviceTest, RefusesDimsThatItCannotHold) {
  auto x = Output<Bf16, 2>({1, 24});
  auto weight = Output<Bf16, 1>({24});
  EXPECT_EQ(RmsNorm(stream(), {.x = x, .weight = weight, .y = x}).message(),
            "RmsNorm: dim is 24, must be a positive multiple of 16");
  auto wide = Output<Bf16, 2>({1, 32784});
  auto wide_weight = Output<Bf16, 1>({32784});
  EXPECT_EQ(RmsNorm(stream(), {.x = wide, .weight = wide_weight, .y = wide}).message(),
            "RmsNorm: dim is 32784, must be at most 32768 on a device");
}

}  // namespace
}  // namespace tandem::kernels::cuda

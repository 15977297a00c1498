// The quantisers on the device have the CPU's bytes: every BF16 value, both scale formats, NaN codes with their signs.
#include "kernels/cuda/device_testing.h"
#include "kernels/cuda/ops.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {
namespace {

constexpr Placement kPlacements[] = {{}, {.row_gap = 128}, {.row_gap = 3, .offset = 1}};

class QuantDeviceTest : public DeviceTest {
 protected:
  void CompareQuant(absl::string_view what, Tensor<Bf16, 2>& x, bool has_infinity = false) {
    for (const ScaleFormat format : {ScaleFormat::kUe8m0, ScaleFormat::kFloat32}) {
      Tensor<E4m3, 2> expected_q({x.dim(0), x.dim(1)});
      Tensor<float, 2> expected_scale({x.dim(0), x.dim(1) / 128});
      ASSERT_TRUE(kernels::Quant128({.x = x, .scale_format = format, .q = expected_q, .scale = expected_scale}).ok());
      for (const Placement& placement : kPlacements) {
        auto device_x = Upload(x, placement);
        auto q = Output<E4m3, 2>({x.dim(0), x.dim(1)}, placement);
        auto scale = Output<float, 2>({x.dim(0), x.dim(1) / 128}, placement);
        RunOp(Quant128(stream(), {.x = device_x, .scale_format = format, .q = q, .scale = scale}));
        const std::string name = absl::StrCat("Quant128 ", what, format == ScaleFormat::kUe8m0 ? " ue8m0" : " float32",
                                              " ", x.dim(0), "x", x.dim(1), " gap ", placement.row_gap);
        // What an infinity becomes in a group of infinite scale is NaN, of a sign that IEEE leaves to the machine.
        has_infinity ? ExpectSameBits(name + " q", q.Download(), expected_q)
                     : ExpectSameBytes(name + " q", q.Download(), expected_q);
        ExpectSameBytes(name + " scale", scale.Download(), expected_scale);
      }
    }
  }
};

TEST_F(QuantDeviceTest, RandomRowsAreTheCpus) {
  Source source(1);
  for (const int64_t dim : {128, 384, 1536, 7168}) {
    for (const int64_t num_rows : {0, 1, 3, 65}) {
      Tensor<Bf16, 2> x = source.NormalBf16<2>({num_rows, dim});
      // Groups of very different size, down to the floor of the scale.
      for (int64_t i = 0; i < x.size(); ++i)
        x[i] = ToBf16(ToFloat(x[i]) * std::ldexp(1.0f, static_cast<int>(i / 128 % 40) - 20));
      CompareQuant("random", x);
    }
  }
}

// Each group holds one amax and a run of all 65,536 BF16 values, so that every code and rounding boundary is met.
TEST_F(QuantDeviceTest, EveryValueUnderManyScalesIsTheCpus) {
  Tensor<Bf16, 2> x({1040, 512});
  for (int64_t i = 0; i < x.size(); ++i) x[i] = Bf16{static_cast<uint16_t>(i * 127 + i / 65536 * 31)};
  for (int64_t group = 0; group < x.size() / 128; ++group) {
    // Every second group keeps its own extremes, NaN and infinities included; the others are brought below one bound.
    if (group % 2 == 0) continue;
    const float bound = std::ldexp(1.0f + static_cast<float>(group % 128) / 128, static_cast<int>(group % 41) - 20);
    for (int64_t i = group * 128; i < group * 128 + 128; ++i) {
      if (!(std::abs(ToFloat(x[i])) <= bound)) x[i] = ToBf16(i % 2 == 0 ? bound : -bound);
    }
  }
  CompareQuant("all values", x, true);
}

TEST_F(QuantDeviceTest, NanKeepsItsSignAndDoesNotTouchTheScale) {
  Source source(2);
  Tensor<Bf16, 2> x = source.NormalBf16<2>({4, 256});
  x.at(0, 3) = Bf16{0x7fc0};
  x.at(0, 4) = Bf16{0xffc0};
  x.at(1, 200) = Bf16{0xff81};
  for (int64_t k = 0; k < 128; ++k) x.at(2, k) = Bf16{0x7fc0};
  for (int64_t k = 0; k < 128; ++k) x.at(3, k) = Bf16{static_cast<uint16_t>(k % 2 == 0 ? 0 : 0x8000)};
  x.at(3, 200) = Bf16{0xff80};
  CompareQuant("NaN", x);
}

TEST_F(QuantDeviceTest, ARowsBytesAreItsOwn) {
  Source source(3);
  Tensor<Bf16, 2> x = source.NormalBf16<2>({300, 640});
  const auto quantized = [&](Tensor<Bf16, 2>& rows) {
    auto device_x = Upload(rows);
    auto q = Output<E4m3, 2>({rows.dim(0), 640});
    auto scale = Output<float, 2>({rows.dim(0), 5});
    RunOp(Quant128(stream(), {.x = device_x, .q = q, .scale = scale}));
    return q.Download();
  };
  Tensor<E4m3, 2> all = quantized(x);
  for (const int count : {1, 7, 256}) {
    std::vector<int32_t> order = source.Permutation(300);
    order.resize(static_cast<size_t>(count));
    Tensor<Bf16, 2> some = PickRows(x, order);
    Tensor<E4m3, 2> expected = PickRows(all, order);
    ExpectSameBytes(absl::StrCat("Quant128 rows ", count), quantized(some), expected);
  }
}

TEST_F(QuantDeviceTest, DequantizedWeightsAreTheCpus) {
  Source source(4);
  for (const auto& [out_dim, in_dim] : {std::pair<int64_t, int64_t>{0, 128}, {1, 128}, {130, 256}, {512, 512}}) {
    Tensor<E4m3, 2> weight({out_dim, in_dim});
    for (E4m3& code : weight.values()) code.bits = static_cast<uint8_t>(source.Below(256));
    Tensor<float, 2> scale = source.NormalF32<2>({(out_dim + 127) / 128, in_dim / 128}, 0.01f);
    Tensor<Bf16, 2> expected({out_dim, in_dim});
    ASSERT_TRUE(kernels::DequantizeFp8Weight({.weight = {.weight = weight, .scale = scale}, .out = expected}).ok());
    for (const Placement& placement : kPlacements) {
      auto device_weight = Upload(weight, placement);
      auto device_scale = Upload(scale, placement);
      auto out = Output<Bf16, 2>({out_dim, in_dim}, placement);
      RunOp(DequantizeFp8Weight(stream(), {.weight = {.weight = device_weight, .scale = device_scale}, .out = out}));
      ExpectSameBits(absl::StrCat("DequantizeFp8Weight gap ", placement.row_gap), out.Download(), expected);
    }
  }
}

TEST_F(QuantDeviceTest, RefusesShapesThatDoNotFit) {
  auto x = Output<Bf16, 2>({2, 100});
  auto q = Output<E4m3, 2>({2, 100});
  auto scale = Output<float, 2>({2, 1});
  EXPECT_EQ(Quant128(stream(), {.x = x, .q = q, .scale = scale}).message(),
            "Quant128: dim is 100, must be a positive multiple of 128");
}

}  // namespace
}  // namespace tandem::kernels::cuda

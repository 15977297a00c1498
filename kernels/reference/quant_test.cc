// Proves the quantiser by its definition in double, its corner values, and weight dequantisation with ragged blocks.
#include <cmath>
#include <limits>

#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

struct Quantized {
  explicit Quantized(Tensor<Bf16, 2>& x, ScaleFormat format = ScaleFormat::kUe8m0)
      : q({x.dim(0), x.dim(1)}), scale({x.dim(0), x.dim(1) / 128}) {
    EXPECT_TRUE(Quant128({.x = x, .scale_format = format, .q = q, .scale = scale}).ok());
  }
  Tensor<E4m3, 2> q;
  Tensor<float, 2> scale;
};

TEST(Quant128Test, Ue8m0ScaleIsTheSmallestPowerThatFits) {
  Source source(1);
  for (float deviation : {1e-6f, 0.01f, 1.0f, 1e4f}) {
    Tensor<Bf16, 2> x = source.NormalBf16<2>({6, 384}, deviation);
    Quantized quantized(x);
    for (int64_t row = 0; row < 6; ++row) {
      for (int64_t group = 0; group < 3; ++group) {
        double amax = 1e-4f;
        for (int64_t k = 0; k < 128; ++k) amax = std::max(amax, std::abs(double{ToFloat(x.at(row, group * 128 + k))}));
        const double scale = quantized.scale.at(row, group);
        EXPECT_EQ(scale, std::exp2(std::ceil(std::log2(amax / 448))));
        for (int64_t k = 0; k < 128; ++k) {
          const double ratio = ToFloat(x.at(row, group * 128 + k)) / scale;  // exact: a power of two
          EXPECT_EQ(quantized.q.at(row, group * 128 + k), ToE4m3(static_cast<float>(ratio)));
          EXPECT_LE(std::abs(ratio), 448);
        }
      }
    }
  }
}

TEST(Quant128Test, KeepsExactPowersAndRoundsUpJustAbove) {
  Tensor<Bf16, 2> x({2, 128});
  x.at(0, 5) = ToBf16(-448.0f);
  x.at(1, 5) = ToBf16(450.0f);
  Quantized quantized(x);
  EXPECT_EQ(quantized.scale[0], 1.0f);
  EXPECT_EQ(quantized.q.at(0, 5).bits, 0xfe);
  EXPECT_EQ(quantized.scale[1], 2.0f);
  EXPECT_EQ(quantized.q.at(1, 5), ToE4m3(225.0f));
}

TEST(Quant128Test, ZerosTakeTheFloorScale) {
  Tensor<Bf16, 2> x({1, 128});
  Quantized power(x), plain(x, ScaleFormat::kFloat32);
  EXPECT_EQ(power.scale[0], 0x1p-22f);  // 1e-4 / 448 = 2.2e-7
  EXPECT_EQ(plain.scale[0], 1e-4f * (1.0f / 448.0f));
  for (E4m3 code : power.q.values()) EXPECT_EQ(code.bits, 0);
}

TEST(Quant128Test, Float32ScaleIsAmaxOver448) {
  Source source(2);
  Tensor<Bf16, 2> x = source.NormalBf16<2>({8, 256}, 3);
  Quantized quantized(x, ScaleFormat::kFloat32);
  for (int64_t row = 0; row < 8; ++row) {
    for (int64_t group = 0; group < 2; ++group) {
      float amax = 0;
      for (int64_t k = 0; k < 128; ++k) amax = std::max(amax, std::abs(ToFloat(x.at(row, group * 128 + k))));
      EXPECT_NEAR(quantized.scale.at(row, group), amax / 448.0, amax / 448.0 * 1e-7);
      double error = 0, norm = 0;
      for (int64_t k = 0; k < 128; ++k) {
        const double value = ToFloat(x.at(row, group * 128 + k));
        const double back = ToFloat(quantized.q.at(row, group * 128 + k)) * double{quantized.scale.at(row, group)};
        error += (value - back) * (value - back);
        norm += value * value;
      }
      EXPECT_LT(std::sqrt(error / norm), 0.035);  // E4M3 has steps of 1/8 at most, 1/16 half a step
    }
  }
}

TEST(Quant128Test, NanBecomesANanCodeAndLeavesItsNeighboursAlone) {
  Source source(3);
  Tensor<Bf16, 2> x = source.NormalBf16<2>({1, 256});
  Quantized clean(x);
  const Bf16 nan{0x7fc0};
  x.at(0, 17) = nan;
  Quantized dirty(x);
  EXPECT_EQ(dirty.q.at(0, 17).bits & 0x7f, 0x7f);
  EXPECT_EQ(dirty.scale[1], clean.scale[1]);
  for (int64_t k = 128; k < 256; ++k) EXPECT_EQ(dirty.q.at(0, k), clean.q.at(0, k));
}

TEST(Quant128Test, RefusesWidthsThatCutAGroup) {
  Tensor<Bf16, 2> x({1, 192});
  Tensor<E4m3, 2> q({1, 192});
  Tensor<float, 2> scale({1, 1});
  EXPECT_EQ(Quant128({.x = x, .q = q, .scale = scale}).message(),
            "Quant128: dim is 192, must be a positive multiple of 128");
}

TEST(DequantizeFp8WeightTest, MultipliesByTheBlocksScaleAndRoundsOnce) {
  Source source(4);
  Tensor<E4m3, 2> weight = source.NormalE4m3<2>({576, 256});
  Tensor<float, 2> scale = source.NormalF32<2>({5, 2});  // not powers of two: rounding happens
  Tensor<Bf16, 2> out({576, 256});
  ASSERT_TRUE(DequantizeFp8Weight({.weight = {weight, scale}, .out = out}).ok());
  for (int64_t n = 0; n < 576; ++n) {
    for (int64_t k = 0; k < 256; ++k) {
      EXPECT_EQ(out.at(n, k), ToBf16(ToFloat(weight.at(n, k)) * scale.at(n / 128, k / 128)));
    }
  }
}

TEST(DequantizeFp8WeightTest, RefusesScalesOfAnotherShape) {
  Tensor<E4m3, 2> weight({576, 256});
  Tensor<float, 2> scale({4, 2});
  Tensor<Bf16, 2> out({576, 256});
  EXPECT_EQ(DequantizeFp8Weight({.weight = {weight, scale}, .out = out}).message(),
            "DequantizeFp8Weight: weight scale is [4, 2], must be [5, 2]");
}

}  // namespace
}  // namespace tandem::kernels

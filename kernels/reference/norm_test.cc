// Proves the norms against double arithmetic to one BF16 ulp and against their stated order bit for bit, and that rows
// do not touch each other.
#include <cmath>

#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kRows = 7;
constexpr int64_t kDim = 384;
constexpr double kEps = 1e-6;

std::vector<double> ExactRmsNorm(const std::vector<double>& x, const std::vector<double>& weight) {
  std::vector<double> y;
  const size_t dim = weight.size();
  for (size_t row = 0; row * dim < x.size(); ++row) {
    double squares = 0;
    for (size_t k = 0; k < dim; ++k) squares += x[row * dim + k] * x[row * dim + k];
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(dim) + kEps);
    for (size_t k = 0; k < dim; ++k) y.push_back(weight[k] * x[row * dim + k] * inverse);
  }
  return y;
}

TEST(RmsNormTest, IsWithinOneUlpOfDouble) {
  Source source(1);
  for (float deviation : {1e-4f, 1.0f, 300.0f}) {  // eps matters in the first
    Tensor<Bf16, 2> x = source.NormalBf16<2>({kRows, kDim}, deviation);
    Tensor<Bf16, 1> weight = source.NormalBf16<1>({kDim});
    Tensor<Bf16, 2> y({kRows, kDim});
    ASSERT_TRUE(RmsNorm({.x = x, .weight = weight, .y = y}).ok());
    ExpectWithinUlp(y, ExactRmsNorm(ToDoubles(x), ToDoubles(weight)), 1);
  }
}

TEST(RmsNormTest, ReadsAndWritesStridedRowsAndInPlace) {
  Source source(2);
  Tensor<Bf16, 2> wide = source.NormalBf16<2>({kRows, kDim + 64});
  Tensor<Bf16, 1> weight = source.NormalBf16<1>({kDim});
  Tensor<Bf16, 2> y({kRows, kDim});
  ASSERT_TRUE(RmsNorm({.x = wide.view().Columns(0, kDim), .weight = weight, .y = y}).ok());
  Tensor<Bf16, 2> in_place = wide;
  const Matrix<Bf16> left = in_place.view().Columns(0, kDim);
  ASSERT_TRUE(RmsNorm({.x = left, .weight = weight, .y = left}).ok());
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t k = 0; k < kDim; ++k) EXPECT_EQ(in_place.at(row, k), y.at(row, k));
    for (int64_t k = kDim; k < kDim + 64; ++k) EXPECT_EQ(in_place.at(row, k), wide.at(row, k));
  }
}

TEST(RmsNormTest, ARowsBitsDoNotDependOnTheBatch) {
  Source source(3);
  Tensor<Bf16, 2> x = source.NormalBf16<2>({kRows, kDim});
  Tensor<Bf16, 1> weight = source.NormalBf16<1>({kDim});
  Tensor<Bf16, 2> together({kRows, kDim}), alone({kRows, kDim});
  ASSERT_TRUE(RmsNorm({.x = x, .weight = weight, .y = together}).ok());
  for (int64_t row = 0; row < kRows; ++row) {
    ASSERT_TRUE(RmsNorm({.x = x.view().Slice(row, 1), .weight = weight, .y = alone.view().Slice(row, 1)}).ok());
  }
  EXPECT_TRUE(together == alone);
}

TEST(RmsNormTest, RefusesBadShapes) {
  Tensor<Bf16, 2> x({2, 24}), y({2, 24});
  Tensor<Bf16, 1> weight({24});
  EXPECT_EQ(RmsNorm({.x = x, .weight = weight, .y = y}).message(),
            "RmsNorm: dim is 24, must be a positive multiple of 16");
  Tensor<Bf16, 2> x32({2, 32});
  EXPECT_EQ(RmsNorm({.x = x32, .weight = weight, .y = y}).message(), "RmsNorm: weight is [24], must be [32]");
}

TEST(AddRmsNormTest, NormsTheUnroundedSum) {
  Source source(4);
  Tensor<Bf16, 2> x = source.NormalBf16<2>({kRows, kDim});
  Tensor<Bf16, 2> residual = source.NormalBf16<2>({kRows, kDim}, 8);
  Tensor<Bf16, 1> weight = source.NormalBf16<1>({kDim});
  Tensor<Bf16, 2> y({kRows, kDim}), residual_out({kRows, kDim});
  ASSERT_TRUE(AddRmsNorm({.x = x, .residual = residual, .weight = weight, .y = y, .residual_out = residual_out}).ok());

  std::vector<double> sum = ToDoubles(x);
  const std::vector<double> addend = ToDoubles(residual);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
  ExpectWithinUlp(y, ExactRmsNorm(sum, ToDoubles(weight)), 1);
  ExpectWithinUlp(residual_out, sum, 0);

  // The norm of the rounded sum is within one ulp as well, but it is off in many places, not in a few.
  Tensor<Bf16, 2> from_rounded({kRows, kDim});
  ASSERT_TRUE(RmsNorm({.x = residual_out, .weight = weight, .y = from_rounded}).ok());
  const std::vector<double> exact = ExactRmsNorm(sum, ToDoubles(weight));
  const auto count_off = [&](Tensor<Bf16, 2>& values) {
    int off = 0;
    for (size_t i = 0; i < exact.size(); ++i) off += values.values()[i] != ToBf16(static_cast<float>(exact[i]));
    return off;
  };
  EXPECT_LT(count_off(y), 10);
  EXPECT_GT(count_off(from_rounded), 300);
}

TEST(NormTest, SumsInTheDocumentedOrder) {
  Source source(7);
  Tensor<Bf16, 2> x = source.NormalBf16<2>({kRows, kDim}), residual = source.NormalBf16<2>({kRows, kDim});
  Tensor<Bf16, 1> weight = source.NormalBf16<1>({kDim});
  Tensor<float, 1> wide_weight = source.NormalF32<1>({kDim}), bias = source.NormalF32<1>({kDim});
  Tensor<Bf16, 2> rms({kRows, kDim}), add_rms({kRows, kDim}), residual_out({kRows, kDim}), layer({kRows, kDim});
  ASSERT_TRUE(RmsNorm({.x = x, .weight = weight, .y = rms}).ok());
  ASSERT_TRUE(
      AddRmsNorm({.x = x, .residual = residual, .weight = weight, .y = add_rms, .residual_out = residual_out}).ok());
  ASSERT_TRUE(LayerNorm({.x = x, .weight = wide_weight, .bias = bias, .y = layer}).ok());
  for (int64_t row = 0; row < kRows; ++row) {
    const auto value = [&](int64_t k) { return ToFloat(x.at(row, k)); };
    const auto sum = [&](int64_t k) { return value(k) + ToFloat(residual.at(row, k)); };
    const auto inverse = [&](float squares) { return 1.0f / std::sqrt(squares / float{kDim} + 1e-6f); };
    const float of_x = inverse(LaneSum(kDim, [&](int64_t k) { return value(k) * value(k); }));
    const float of_sum = inverse(LaneSum(kDim, [&](int64_t k) { return sum(k) * sum(k); }));
    const float mean = LaneSum(kDim, value) / float{kDim};
    const float of_centred = inverse(LaneSum(kDim, [&](int64_t k) { return (value(k) - mean) * (value(k) - mean); }));
    for (int64_t k = 0; k < kDim; ++k) {
      ASSERT_EQ(rms.at(row, k), ToBf16(ToFloat(weight[k]) * (value(k) * of_x)));
      ASSERT_EQ(add_rms.at(row, k), ToBf16(ToFloat(weight[k]) * (sum(k) * of_sum)));
      ASSERT_EQ(layer.at(row, k), ToBf16(((value(k) - mean) * of_centred) * wide_weight[k] + bias[k]));
    }
  }
}

TEST(AddRmsNormTest, WorksInPlaceAndRowByRow) {
  Source source(5);
  Tensor<Bf16, 2> x = source.NormalBf16<2>({kRows, kDim});
  Tensor<Bf16, 2> residual = source.NormalBf16<2>({kRows, kDim});
  Tensor<Bf16, 1> weight = source.NormalBf16<1>({kDim});
  Tensor<Bf16, 2> y({kRows, kDim}), residual_out({kRows, kDim});
  ASSERT_TRUE(AddRmsNorm({.x = x, .residual = residual, .weight = weight, .y = y, .residual_out = residual_out}).ok());
  for (int64_t row = kRows - 1; row >= 0; --row) {
    const Matrix<Bf16> x_row = x.view().Slice(row, 1);
    const Matrix<Bf16> r_row = residual.view().Slice(row, 1);
    ASSERT_TRUE(AddRmsNorm({.x = x_row, .residual = r_row, .weight = weight, .y = x_row, .residual_out = r_row}).ok());
  }
  EXPECT_TRUE(x == y);
  EXPECT_TRUE(residual == residual_out);
}

TEST(LayerNormTest, IsWithinOneUlpOfDouble) {
  Source source(6);
  constexpr int64_t kKey = 128;
  Tensor<Bf16, 2> x = source.NormalBf16<2>({kRows, kKey});
  for (Bf16& value : x.values()) value = ToBf16(ToFloat(value) + 3);  // a mean worth subtracting
  Tensor<float, 1> weight = source.NormalF32<1>({kKey});
  Tensor<float, 1> bias = source.NormalF32<1>({kKey});
  Tensor<Bf16, 2> y({kRows, kKey});
  ASSERT_TRUE(LayerNorm({.x = x, .weight = weight, .bias = bias, .y = y}).ok());
  std::vector<double> exact;
  for (int64_t row = 0; row < kRows; ++row) {
    double mean = 0;
    for (int64_t k = 0; k < kKey; ++k) mean += ToFloat(x.at(row, k)) / double{kKey};
    double variance = 0;
    for (int64_t k = 0; k < kKey; ++k) variance += std::pow(ToFloat(x.at(row, k)) - mean, 2) / double{kKey};
    for (int64_t k = 0; k < kKey; ++k) {
      exact.push_back((ToFloat(x.at(row, k)) - mean) / std::sqrt(variance + kEps) * weight[k] + bias[k]);
    }
  }
  // Near zero, weight * normed and bias cancel: there one ulp of FP32 input is many of the tiny result.
  for (int64_t i = 0; i < y.size(); ++i) {
    const double error = std::abs(ToFloat(y[i]) - exact[static_cast<size_t>(i)]);
    EXPECT_LE(error, std::abs(exact[static_cast<size_t>(i)]) * 0x1p-8 + 1e-5) << i;
  }
  Tensor<Bf16, 2> in_place = x;
  ASSERT_TRUE(LayerNorm({.x = in_place, .weight = weight, .bias = bias, .y = in_place}).ok());
  EXPECT_TRUE(in_place == y);
}

}  // namespace
}  // namespace tandem::kernels

// Proves the FP8 linear against double, its summation order against a scalar statement of it, bit for bit, and that
// neither the batch nor the grouping by expert changes a row.
#include <cmath>

#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

struct Problem {
  Problem(uint32_t seed, int64_t rows, int64_t out_dim, int64_t in_dim)
      : source(seed),
        x(source.NormalE4m3<2>({rows, in_dim})),
        x_scale(source.PowersOfTwo<2>({rows, in_dim / 128}, -8, -4)),
        weight(source.NormalE4m3<2>({out_dim, in_dim})),
        w_scale(source.PowersOfTwo<2>({(out_dim + 127) / 128, in_dim / 128}, -14, -10)) {}

  Tensor<Bf16, 2> Run(int k_segments = 1) {
    Tensor<Bf16, 2> y({x.dim(0), weight.dim(0)});
    EXPECT_TRUE(Fp8Linear({.x = x,
                           .x_scale = x_scale,
                           .weight = {weight, w_scale},
                           .k_segments = k_segments,
                           .y = y,
                           .workspace = workspace.span()})
                    .ok());
    return y;
  }
  double Exact(int64_t m, int64_t n) {
    double sum = 0;
    for (int64_t k = 0; k < x.dim(1); ++k) {
      sum += double{ToFloat(x.at(m, k))} * ToFloat(weight.at(n, k)) * x_scale.at(m, k / 128) *
             w_scale.at(n / 128, k / 128);
    }
    return sum;
  }
  // The documented order in scalars: per segment the dot product of the dequantised values, then a tree over segments.
  Bf16 InOrder(int64_t m, int64_t n, int segments) {
    const int64_t width = x.dim(1) / segments;
    std::vector<float> partials;
    for (int64_t begin = 0; begin < x.dim(1); begin += width) {
      partials.push_back(DotSum(
          width, [&](int64_t k) { return ToFloat(x.at(m, begin + k)) * x_scale.at(m, (begin + k) / 128); },
          [&](int64_t k) { return ToFloat(weight.at(n, begin + k)) * w_scale.at(n / 128, (begin + k) / 128); }));
    }
    while (partials.size() > 1) {
      std::vector<float> sums;
      for (size_t i = 0; i < partials.size(); i += 2) sums.push_back(partials[i] + partials[i + 1]);
      partials = sums;
    }
    return ToBf16(partials[0]);
  }

  Source source;
  Tensor<E4m3, 2> x;
  Tensor<float, 2> x_scale;
  Tensor<E4m3, 2> weight;
  Tensor<float, 2> w_scale;
  OpWorkspace workspace{Fp8LinearWorkspaceBytes(x.dim(0), x.dim(1))};
};

TEST(Fp8LinearTest, IsCloseToTheExactProductWithRaggedRows) {
  Problem problem(1, 5, 576, 512);  // kv_a_proj: the last block of weight scales covers 64 rows
  Tensor<Bf16, 2> y = problem.Run();
  std::vector<double> exact;
  for (int64_t m = 0; m < 5; ++m) {
    for (int64_t n = 0; n < 576; ++n) exact.push_back(problem.Exact(m, n));
  }
  EXPECT_LT(Difference(ToDoubles(y), exact), 1e-5);
}

TEST(Fp8LinearTest, EachBlockUsesItsOwnScales) {
  Problem problem(2, 2, 256, 256);
  for (float& scale : problem.w_scale.values()) scale = 0;
  problem.w_scale.at(1, 0) = 1;
  Tensor<Bf16, 2> y = problem.Run();
  for (int64_t m = 0; m < 2; ++m) {
    for (int64_t n = 0; n < 128; ++n) EXPECT_EQ(ToFloat(y.at(m, n)), 0);
    for (int64_t n = 128; n < 256; ++n) {
      EXPECT_NEAR(ToFloat(y.at(m, n)), problem.Exact(m, n), std::abs(problem.Exact(m, n)) * 0x1p-8 + 1e-2);
    }
  }
}

TEST(Fp8LinearTest, SumsInTheDocumentedOrder) {
  for (int segments : {1, 2, 4, 8}) {
    Problem problem(3, 3, 40, 1024);
    Tensor<Bf16, 2> y = problem.Run(segments);
    for (int64_t m = 0; m < 3; ++m) {
      for (int64_t n = 0; n < 40; ++n) ASSERT_EQ(y.at(m, n), problem.InOrder(m, n, segments)) << segments;
    }
  }
}

TEST(Fp8LinearTest, ARowsBitsDoNotDependOnTheBatch) {
  Problem problem(4, 70, 96, 384);
  Tensor<Bf16, 2> together = problem.Run();
  for (int64_t begin = 0, size = 1; begin < 70; begin += size, size = size % 37 + 5) {
    const int64_t count = std::min<int64_t>(size, 70 - begin);
    Tensor<Bf16, 2> part({count, 96});
    ASSERT_TRUE(Fp8Linear({.x = problem.x.view().Slice(begin, count),
                           .x_scale = problem.x_scale.view().Slice(begin, count),
                           .weight = {problem.weight, problem.w_scale},
                           .y = part,
                           .workspace = problem.workspace.span()})
                    .ok());
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t n = 0; n < 96; ++n) ASSERT_EQ(part.at(i, n), together.at(begin + i, n));
    }
  }
}

TEST(Fp8LinearTest, NanReachesItsOwnRowOnly) {
  Problem problem(5, 3, 32, 128);
  problem.x.at(1, 64) = E4m3{0x7f};
  Tensor<Bf16, 2> y = problem.Run();
  for (int64_t n = 0; n < 32; ++n) {
    EXPECT_FALSE(std::isnan(ToFloat(y.at(0, n))));
    EXPECT_TRUE(std::isnan(ToFloat(y.at(1, n))));
    EXPECT_FALSE(std::isnan(ToFloat(y.at(2, n))));
  }
}

TEST(Fp8LinearTest, RefusesBadShapes) {
  Problem problem(6, 2, 32, 256);
  Tensor<Bf16, 2> y({2, 33});
  EXPECT_EQ(Fp8Linear({.x = problem.x,
                       .x_scale = problem.x_scale,
                       .weight = {problem.weight, problem.w_scale},
                       .y = y,
                       .workspace = problem.workspace.span()})
                .message(),
            "Fp8Linear: y is [2, 33], must be [2, 32]");
  Tensor<Bf16, 2> good({2, 32});
  EXPECT_EQ(Fp8Linear({.x = problem.x,
                       .x_scale = problem.x_scale,
                       .weight = {problem.weight, problem.w_scale},
                       .k_segments = 4,
                       .y = good,
                       .workspace = problem.workspace.span()})
                .message(),
            "Fp8Linear: k_segments is 4, must be 1, 2, 4 or 8 and cut in_dim into multiples of 128");
}

TEST(RowParallelSegmentsTest, IsTheLargestPowerUpToEightThatKeepsGroupsWhole) {
  EXPECT_EQ(RowParallelSegments(128), 1);
  EXPECT_EQ(RowParallelSegments(384), 1);
  EXPECT_EQ(RowParallelSegments(512), 4);
  EXPECT_EQ(RowParallelSegments(1024), 8);
  EXPECT_EQ(RowParallelSegments(16384), 8);
  EXPECT_EQ(RowParallelSegments(18432), 8);
  EXPECT_EQ(RowParallelSegments(2048), 8);
  EXPECT_EQ(RowParallelSegments(768), 2);
}

class Fp8GroupedLinearTest : public testing::Test {
 protected:
  static constexpr int64_t kExperts = 4, kOut = 96, kIn = 256, kRows = 9;
  Fp8GroupedLinearTest() {
    for (int64_t e = 0; e < kExperts; ++e) {
      experts_.emplace_back(static_cast<uint32_t>(10 + e), 1, kOut, kIn);
      weights_.push_back({experts_.back().weight, experts_.back().w_scale});
    }
  }
  Source source_{1};
  Tensor<E4m3, 2> x_ = source_.NormalE4m3<2>({kRows, kIn});
  Tensor<float, 2> x_scale_ = source_.PowersOfTwo<2>({kRows, kIn / 128}, -8, -4);
  std::vector<Problem> experts_ = [] {
    std::vector<Problem> experts;
    experts.reserve(kExperts);  // the views in weights_ point into it
    return experts;
  }();
  std::vector<Fp8Weight> weights_;
  OpWorkspace workspace_{Fp8LinearWorkspaceBytes(kRows, kIn)};
};

TEST_F(Fp8GroupedLinearTest, GivesEachPairTheBitsOfItsExpertsLinear) {
  std::vector<int32_t> offsets = {0, 40, 40, 43, 50};  // expert 1 is empty
  std::vector<int32_t> rows;
  for (int pair = 0; pair < 50; ++pair) rows.push_back(static_cast<int32_t>(source_.Below(kRows)));
  weights_[1] = {};  // of an empty group nothing is read
  Tensor<Bf16, 2> y({50, kOut});
  ASSERT_TRUE(Fp8GroupedLinear({.x = x_,
                                .x_scale = x_scale_,
                                .x_rows = Vector<const int32_t>(rows.data(), {50}),
                                .group_offsets = Vector<const int32_t>(offsets.data(), {5}),
                                .weights = weights_,
                                .k_segments = 2,
                                .y = y,
                                .workspace = workspace_.span()})
                  .ok());
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    for (int32_t pair = offsets[expert]; pair < offsets[expert + 1]; ++pair) {
      Tensor<Bf16, 2> alone({1, kOut});
      ASSERT_TRUE(Fp8Linear({.x = x_.view().Slice(rows[pair], 1),
                             .x_scale = x_scale_.view().Slice(rows[pair], 1),
                             .weight = weights_[expert],
                             .k_segments = 2,
                             .y = alone,
                             .workspace = workspace_.span()})
                      .ok());
      for (int64_t n = 0; n < kOut; ++n) ASSERT_EQ(y.at(pair, n), alone.at(0, n)) << pair;
    }
  }
}

TEST_F(Fp8GroupedLinearTest, ReadsRowsInOrderWithoutAList) {
  std::vector<int32_t> offsets = {0, 2, 5, 5, 9};
  Tensor<Bf16, 2> y({kRows, kOut}), alone({kRows, kOut});
  ASSERT_TRUE(Fp8GroupedLinear({.x = x_,
                                .x_scale = x_scale_,
                                .x_rows = {},
                                .group_offsets = Vector<const int32_t>(offsets.data(), {5}),
                                .weights = weights_,
                                .y = y,
                                .workspace = workspace_.span()})
                  .ok());
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    const int64_t begin = offsets[expert], count = offsets[expert + 1] - begin;
    ASSERT_TRUE(Fp8Linear({.x = x_.view().Slice(begin, count),
                           .x_scale = x_scale_.view().Slice(begin, count),
                           .weight = weights_[expert],
                           .y = alone.view().Slice(begin, count),
                           .workspace = workspace_.span()})
                    .ok());
  }
  EXPECT_TRUE(y == alone);
}

TEST_F(Fp8GroupedLinearTest, RefusesOffsetsThatDoNotCoverThePairs) {
  Tensor<Bf16, 2> y({kRows, kOut});
  const auto run = [&](std::vector<int32_t> offsets) {
    return std::string(Fp8GroupedLinear({.x = x_,
                                         .x_scale = x_scale_,
                                         .x_rows = {},
                                         .group_offsets = Vector<const int32_t>(offsets.data(), {5}),
                                         .weights = weights_,
                                         .y = y,
                                         .workspace = workspace_.span()})
                           .message());
  };
  EXPECT_EQ(run({0, 2, 5, 5, 8}), "Fp8GroupedLinear: the last of group_offsets is 8, must be the number of pairs");
  EXPECT_EQ(run({0, 6, 5, 5, 9}), "Fp8GroupedLinear: group_offsets of group is 1, must be ascending");
  EXPECT_EQ(run({1, 2, 5, 5, 9}), "Fp8GroupedLinear: group_offsets[0] is 1, must be 0");
}

}  // namespace
}  // namespace tandem::kernels

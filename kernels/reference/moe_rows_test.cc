// Proves that grouping is a permutation sorted by expert with a way back, and combining against its order and double.
#include <cmath>

#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

TEST(MoeGroupRowsTest, SortsPairsByExpertAndFindsThemAgain) {
  Source source(1);
  constexpr int64_t kRows = 50, kTopK = 4, kExperts = 16;
  Tensor<int32_t, 2> ids({kRows, kTopK});
  for (int64_t row = 0; row < kRows; ++row) {
    std::vector<int32_t> chosen = source.Permutation(kExperts - 1);  // expert 15 stays empty
    std::sort(chosen.begin(), chosen.begin() + kTopK);
    std::copy(chosen.begin(), chosen.begin() + kTopK, &ids.at(row, 0));
  }
  Tensor<int32_t, 1> offsets({kExperts + 1}), pair_rows({kRows * kTopK});
  Tensor<int32_t, 2> row_pairs({kRows, kTopK});
  ASSERT_TRUE(
      MoeGroupRows({.expert_ids = ids, .group_offsets = offsets, .pair_rows = pair_rows, .row_pairs = row_pairs}).ok());

  EXPECT_EQ(offsets[0], 0);
  EXPECT_EQ(offsets[kExperts], kRows * kTopK);
  EXPECT_EQ(offsets[15], offsets[16]);
  std::vector<bool> seen(kRows * kTopK);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t j = 0; j < kTopK; ++j) {
      const int32_t pair = row_pairs.at(row, j);
      EXPECT_FALSE(seen[pair]);
      seen[pair] = true;
      EXPECT_EQ(pair_rows[pair], row);
      EXPECT_GE(pair, offsets[ids.at(row, j)]);
      EXPECT_LT(pair, offsets[ids.at(row, j) + 1]);
    }
  }
  for (int64_t e = 0; e < kExperts; ++e) {
    for (int32_t p = offsets[e] + 1; p < offsets[e + 1]; ++p) EXPECT_LT(pair_rows[p - 1], pair_rows[p]);
  }
}

TEST(MoeGroupRowsTest, RefusesUnknownExperts) {
  Tensor<int32_t, 2> ids({1, 2}), row_pairs({1, 2});
  Tensor<int32_t, 1> offsets({5}), pair_rows({2});
  ids.values() = {3, 4};
  EXPECT_EQ(MoeGroupRows({.expert_ids = ids, .group_offsets = offsets, .pair_rows = pair_rows, .row_pairs = row_pairs})
                .message(),
            "MoeGroupRows: expert_ids[1] is 4, must be in [0, 4)");
}

TEST(MoeCombineTest, AddsExpertsAscendingThenSharedAndRoundsOnce) {
  Source source(2);
  constexpr int64_t kRows = 6, kTopK = 3, kDim = 64;
  Tensor<Bf16, 2> expert_out = source.NormalBf16<2>({kRows * kTopK, kDim});
  Tensor<Bf16, 2> shared = source.NormalBf16<2>({kRows, kDim});
  Tensor<float, 2> weights = source.NormalF32<2>({kRows, kTopK});
  Tensor<int32_t, 2> row_pairs({kRows, kTopK});
  row_pairs.values() = source.Permutation(kRows * kTopK);
  for (bool has_shared : {true, false}) {
    Tensor<Bf16, 2> y({kRows, kDim});
    ASSERT_TRUE(MoeCombine({.expert_out = expert_out,
                            .row_pairs = row_pairs,
                            .weights = weights,
                            .shared_out = has_shared ? Matrix<const Bf16>(shared) : Matrix<const Bf16>(),
                            .y = y})
                    .ok());
    std::vector<double> exact;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t k = 0; k < kDim; ++k) {
        float sum = 0;
        double wide = 0;
        for (int64_t j = 0; j < kTopK; ++j) {
          const float product = weights.at(row, j) * ToFloat(expert_out.at(row_pairs.at(row, j), k));
          sum += product;
          wide += double{weights.at(row, j)} * ToFloat(expert_out.at(row_pairs.at(row, j), k));
        }
        if (has_shared) {
          sum += ToFloat(shared.at(row, k));
          wide += ToFloat(shared.at(row, k));
        }
        EXPECT_EQ(y.at(row, k), ToBf16(sum));
        exact.push_back(wide);
      }
    }
    EXPECT_LT(Difference(ToDoubles(y), exact), 1e-5);
  }
}

TEST(MoeCombineTest, OrderIsAscendingWithTheSharedExpertLast) {
  // 2^24 + 1 is 2^24 in FP32: which terms survive tells the order.
  const auto combine = [](std::array<float, 3> experts, float shared_value) {
    Tensor<Bf16, 2> expert_out({3, 16}), shared({1, 16}), y({1, 16});
    Tensor<float, 2> weights({1, 3});
    Tensor<int32_t, 2> row_pairs({1, 3});
    row_pairs.values() = {2, 0, 1};
    for (int64_t k = 0; k < 16; ++k) {
      for (int64_t j = 0; j < 3; ++j) expert_out.at(row_pairs[j], k) = ToBf16(experts[static_cast<size_t>(j)]);
      shared[k] = ToBf16(shared_value);
    }
    weights.values() = {1, 1, 1};
    EXPECT_TRUE(
        MoeCombine({.expert_out = expert_out, .row_pairs = row_pairs, .weights = weights, .shared_out = shared, .y = y})
            .ok());
    return ToFloat(y[7]);
  };
  EXPECT_EQ(combine({0x1p24f, 1, -0x1p24f}, 0), 0);
  EXPECT_EQ(combine({0x1p24f, -0x1p24f, 1}, 0), 1);
  EXPECT_EQ(combine({1, 0x1p24f, 0}, -0x1p24f), 0);
  EXPECT_EQ(combine({0x1p24f, -0x1p24f, 0}, 1), 1);
}

TEST(MoeCombineTest, MayWriteOverTheSharedOutput) {
  Source source(3);
  Tensor<Bf16, 2> expert_out = source.NormalBf16<2>({2, 32}), shared = source.NormalBf16<2>({1, 32}), y({1, 32});
  Tensor<float, 2> weights = source.NormalF32<2>({1, 2});
  Tensor<int32_t, 2> row_pairs({1, 2});
  row_pairs.values() = {1, 0};
  ASSERT_TRUE(
      MoeCombine({.expert_out = expert_out, .row_pairs = row_pairs, .weights = weights, .shared_out = shared, .y = y})
          .ok());
  ASSERT_TRUE(
      MoeCombine(
          {.expert_out = expert_out, .row_pairs = row_pairs, .weights = weights, .shared_out = shared, .y = shared})
          .ok());
  EXPECT_TRUE(shared == y);
}

}  // namespace
}  // namespace tandem::kernels

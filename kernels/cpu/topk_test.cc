// Proves selection against a full sort, on logits made to collide.
#include <cmath>
#include <limits>

#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Selection {
  std::vector<int32_t> indices;
  int32_t nan_count;
};
Selection Select(std::vector<float> logits, int64_t k) {
  Tensor<int32_t, 2> indices({1, k});
  Tensor<int32_t, 1> context({1}), nan_count({1});
  context[0] = static_cast<int32_t>(logits.size());
  nan_count[0] = -7;
  EXPECT_TRUE(TopK({.logits = Matrix<const float>(logits.data(), {1, static_cast<int64_t>(logits.size())}),
                    .context_length = context,
                    .indices = indices,
                    .nan_count = nan_count})
                  .ok());
  return {indices.values(), nan_count[0]};
}

// By the rules: a stable sort by descending value, NaN as -inf, then ascending positions and -1.
std::vector<int32_t> BySorting(const std::vector<float>& logits, int64_t k) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto value = [&](int32_t i) {
    const float logit = logits[static_cast<size_t>(i)];
    return std::isnan(logit) ? -kInfinity : logit;
  };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return value(a) > value(b); });
  order.resize(std::min(order.size(), static_cast<size_t>(k)));
  std::sort(order.begin(), order.end());
  order.resize(static_cast<size_t>(k), -1);
  return order;
}

TEST(TopKTest, EqualsASortOnRandomLogits) {
  Source source(1);
  for (int trial = 0; trial < 400; ++trial) {
    const int64_t count = 1 + source.Below(700);
    const int64_t k = 1 + source.Below(130);
    std::vector<float> logits;
    for (int64_t i = 0; i < count; ++i) {
      switch (trial % 4) {
        case 0:  // all distinct, many magnitudes
          logits.push_back(source.Normal() * std::exp2(static_cast<float>(source.Below(40) - 20)));
          break;
        case 1:  // few values: ties everywhere
          logits.push_back(static_cast<float>(source.Below(4)) - 2);
          break;
        case 2:  // relu's zeros, of both signs
          logits.push_back(source.Below(3) == 0 ? source.Normal() : (source.Below(2) == 0 ? 0.0f : -0.0f));
          break;
        default:  // neighbours in the last bits
          logits.push_back(std::bit_cast<float>(0x3f800000u + static_cast<uint32_t>(source.Below(300))));
      }
    }
    EXPECT_EQ(Select(logits, k).indices, BySorting(logits, k)) << trial;
  }
}

TEST(TopKTest, TakesTheLowerPositionAmongEquals) {
  EXPECT_EQ(Select({1, 2, 1, 2, 1}, 3).indices, (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(Select({0.0f, -0.0f, 0.0f, -0.0f}, 2).indices, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(Select({-0.0f, 0.0f, -1.0f}, 1).indices, (std::vector<int32_t>{0}));  // -0 equals +0
}

TEST(TopKTest, CountsNanAndSortsItLast) {
  const Selection selection = Select({kNan, -1e30f, kNan, -kInfinity, 5}, 2);
  EXPECT_EQ(selection.indices, (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(selection.nan_count, 2);
  const Selection all = Select({kNan, -kNan, -kInfinity}, 2);  // all equal to -inf: still two positions
  EXPECT_EQ(all.indices, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(all.nan_count, 2);
  EXPECT_EQ(Select({kInfinity, 1, 2}, 1).indices, (std::vector<int32_t>{0}));
  EXPECT_EQ(Select({kInfinity, 1, 2}, 1).nan_count, 0);
}

TEST(TopKTest, GivesEveryPositionWithoutReadingLogitsWhereTheyFit) {
  Tensor<int32_t, 2> indices({2, 4});
  Tensor<int32_t, 1> context({2}), nan_count({2});
  context.values() = {4, 2};
  ASSERT_TRUE(TopK({.logits = Matrix<const float>(nullptr, {2, 0}),
                    .context_length = context,
                    .indices = indices,
                    .nan_count = nan_count})
                  .ok());
  EXPECT_EQ(indices.values(), (std::vector<int32_t>{0, 1, 2, 3, 0, 1, -1, -1}));
  EXPECT_EQ(nan_count.values(), (std::vector<int32_t>{0, 0}));
}

TEST(TopKTest, RowsLookAtTheirOwnContextOnly) {
  Source source(2);
  Tensor<float, 2> logits = source.NormalF32<2>({3, 200});
  Tensor<int32_t, 2> indices({3, 16});
  Tensor<int32_t, 1> context({3}), nan_count({3});
  context.values() = {200, 17, 100};
  for (int64_t s = 17; s < 200; ++s) logits.at(1, s) = kInfinity;
  for (int64_t s = 100; s < 200; ++s) logits.at(2, s) = kNan;
  ASSERT_TRUE(TopK({.logits = logits, .context_length = context, .indices = indices, .nan_count = nan_count}).ok());
  for (int64_t row = 0; row < 3; ++row) {
    const std::vector<float> own(&logits.at(row, 0), &logits.at(row, 0) + context[row]);
    const std::vector<int32_t> selected(&indices.at(row, 0), &indices.at(row, 0) + 16);
    EXPECT_EQ(selected, BySorting(own, 16));
    EXPECT_EQ(nan_count[row], 0);
  }
}

// Lists that are wider than what is chosen: contexts up to the width whole, of longer ones k positions.
TEST(TopKTest, ContextsUpToTheWidthAreTakenWholeWhateverK) {
  Source source(3);
  constexpr int64_t kWidth = 40, kChosen = 7;
  Tensor<float, 2> logits = source.NormalF32<2>({5, 90});
  Tensor<int32_t, 2> indices({5, kWidth});
  Tensor<int32_t, 1> context({5}), nan_count({5});
  context.values() = {7, 8, 40, 41, 90};
  std::fill(indices.values().begin(), indices.values().end(), 77);
  ASSERT_TRUE(
      TopK({.logits = logits, .context_length = context, .indices = indices, .nan_count = nan_count, .k = kChosen})
          .ok());
  for (int64_t row = 0; row < 5; ++row) {
    const std::vector<float> own(&logits.at(row, 0), &logits.at(row, 0) + context[row]);
    const std::vector<int32_t> selected(&indices.at(row, 0), &indices.at(row, 0) + kWidth);
    std::vector<int32_t> expected = BySorting(own, context[row] <= kWidth ? kWidth : kChosen);
    expected.resize(kWidth, -1);
    EXPECT_EQ(selected, expected) << context[row];
  }
  EXPECT_EQ(TopK({.logits = logits, .context_length = context, .indices = indices, .nan_count = nan_count, .k = 41})
                .message(),
            "TopK: k is 41, must be 1 to indices' width");
}

TEST(TopKTest, RefusesLogitsNarrowerThanAContext) {
  Tensor<float, 2> logits({1, 10});
  Tensor<int32_t, 2> indices({1, 4});
  Tensor<int32_t, 1> context({1}), nan_count({1});
  context[0] = 11;
  EXPECT_EQ(TopK({.logits = logits, .context_length = context, .indices = indices, .nan_count = nan_count}).message(),
            "TopK: logits' width is 10, must be at least the longest context above indices' width");
}

}  // namespace
}  // namespace tandem::kernels

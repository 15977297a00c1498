// Proves the frequencies against the specification's constants, the table against libm in long double, and both
// element orders against the definition.
#include <cmath>

#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

constexpr int kPairs = 32;

Tensor<float, 1> Frequencies(const YarnParams& params) {
  Tensor<float, 1> out({kPairs});
  EXPECT_TRUE(YarnFrequencies(params, out).ok());
  return out;
}

TEST(YarnTest, HasTheModelsFrequencies) {
  Tensor<float, 1> f = Frequencies({});
  const std::pair<int, double> expected[] = {{0, 1.0},
                                             {1, 0.7498942093},
                                             {10, 0.05623413252},
                                             {11, 0.03900692657},
                                             {12, 0.02687936011},
                                             {16, 0.0055},
                                             {20, 7.905694150e-4},
                                             {22, 1.778279410e-4},
                                             {23, 3.333803580e-5},
                                             {24, 2.5e-5},
                                             {31, 3.333803580e-6}};
  for (const auto& [pair, value] : expected) EXPECT_NEAR(f[pair] / value, 1.0, 1e-7) << pair;
}

TEST(YarnTest, FindsTheCorrectionRangeOfAShortOriginalContext) {
  // Original context 64: low 0 and high 9, so pair 0 keeps its frequency and pair 9 and later are divided by 40.
  Tensor<float, 1> f = Frequencies({.original_max_position = 64});
  for (int i = 0; i < kPairs; ++i) {
    const double plain = std::pow(10000.0, -2.0 * i / 64);
    const double ramp = std::min(i / 9.0, 1.0);
    EXPECT_NEAR(f[i] / (plain * (1 - ramp) + plain / 40 * ramp), 1.0, 1e-7) << i;
  }
}

TEST(YarnTest, FactorOneIsPlainRope) {
  Tensor<float, 1> f = Frequencies({.factor = 1});
  for (int i = 0; i < kPairs; ++i) EXPECT_NEAR(f[i] / std::pow(10000.0, -2.0 * i / 64), 1.0, 1e-7);
}

TEST(YarnTest, SoftmaxScaleCarriesMSquared) {
  EXPECT_NEAR(YarnSoftmaxScaleFactor(40, 1.0), 1.8738542071, 1e-9);
  EXPECT_NEAR(std::pow(192, -0.5) * YarnSoftmaxScaleFactor(40, 1.0), 0.1352337789, 1e-10);
  EXPECT_EQ(YarnSoftmaxScaleFactor(1, 1.0), 1.0);
}

TEST(YarnTest, RefusesImpossibleParameters) {
  Tensor<float, 1> out({kPairs});
  EXPECT_EQ(YarnFrequencies({.rope_theta = 1}, out).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(YarnFrequencies({.factor = 0}, out).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(YarnFrequencies({.beta_fast = 1, .beta_slow = 2}, out).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RopeTableTest, HoldsTheCosineAndSineOfTheFp32Angle) {
  constexpr int64_t kPositions = 163840;
  Tensor<float, 2> table({kPositions, 2 * kPairs});
  ASSERT_TRUE(BuildRopeTable({.yarn = {}, .table = table}).ok());
  Tensor<float, 1> f = Frequencies({});
  for (int64_t position = 0; position < kPositions; position += position < 5000 ? 1 : 997) {
    for (int i = 0; i < kPairs; ++i) {
      const float angle = static_cast<float>(position) * f[i];
      ASSERT_EQ(table.at(position, i), static_cast<float>(std::cos(static_cast<long double>(angle)))) << position;
      ASSERT_EQ(table.at(position, kPairs + i), static_cast<float>(std::sin(static_cast<long double>(angle))));
    }
  }
}

class RopeTest : public testing::Test {
 protected:
  RopeTest() { EXPECT_TRUE(BuildRopeTable({.yarn = {}, .table = table_}).ok()); }

  // x rotated in double, pair by pair; first and second name the elements of a pair.
  std::vector<double> Rotated(Tensor<Bf16, 3>& x, RopeLayout layout) {
    std::vector<double> y(static_cast<size_t>(x.size()));
    for (int64_t row = 0; row < x.dim(0); ++row) {
      for (int64_t head = 0; head < x.dim(1); ++head) {
        const size_t start = static_cast<size_t>((row * x.dim(1) + head) * 64);
        for (size_t i = 0; i < kPairs; ++i) {
          const size_t first = layout == RopeLayout::kInterleaved ? 2 * i : i;
          const size_t second = layout == RopeLayout::kInterleaved ? 2 * i + 1 : i + 32;
          const double c = table_.at(positions_[row], i), s = table_.at(positions_[row], kPairs + i);
          const double a = ToFloat(x[static_cast<int64_t>(start + first)]);
          const double b = ToFloat(x[static_cast<int64_t>(start + second)]);
          y[start + first] = a * c - b * s;
          y[start + second] = a * s + b * c;
        }
      }
    }
    return y;
  }

  Source source_{1};
  Tensor<float, 2> table_{{4200, 2 * kPairs}};
  Tensor<int32_t, 1> positions_ = [] {
    Tensor<int32_t, 1> positions({5});
    positions.values() = {0, 1, 63, 4097, 4199};
    return positions;
  }();
};

TEST_F(RopeTest, BothLayoutsAreWithinRoundingOfDouble) {
  for (RopeLayout layout : {RopeLayout::kInterleaved, RopeLayout::kHalfSplit}) {
    Tensor<Bf16, 3> x = source_.NormalBf16<3>({5, 3, 64});
    Tensor<Bf16, 3> y({5, 3, 64});
    ASSERT_TRUE(Rope({.layout = layout, .x = x, .positions = positions_, .table = table_, .y = y}).ok());
    const std::vector<double> exact = Rotated(x, layout);
    for (int64_t i = 0; i < y.size(); ++i) {  // relative to the pair: its parts may cancel
      EXPECT_NEAR(ToFloat(y[i]), exact[static_cast<size_t>(i)],
                  std::abs(exact[static_cast<size_t>(i)]) * 0x1p-8 + 1e-6);
    }
  }
}

TEST_F(RopeTest, LayoutsAreTheSameRotationOfPermutedElements) {
  Tensor<Bf16, 3> interleaved = source_.NormalBf16<3>({5, 2, 64});
  Tensor<Bf16, 3> half_split({5, 2, 64});
  const auto permute = [](Tensor<Bf16, 3>& from, Tensor<Bf16, 3>& to) {
    for (int64_t head = 0; head < 10; ++head) {
      for (int64_t i = 0; i < kPairs; ++i) {
        to[head * 64 + i] = from[head * 64 + 2 * i];
        to[head * 64 + i + 32] = from[head * 64 + 2 * i + 1];
      }
    }
  };
  permute(interleaved, half_split);
  for (auto [layout, x] : {std::pair{RopeLayout::kInterleaved, &interleaved}, {RopeLayout::kHalfSplit, &half_split}}) {
    ASSERT_TRUE(Rope({.layout = layout, .x = *x, .positions = positions_, .table = table_, .y = *x}).ok());
  }
  Tensor<Bf16, 3> permuted({5, 2, 64});
  permute(interleaved, permuted);
  EXPECT_TRUE(permuted == half_split);
}

TEST_F(RopeTest, RotatesPartOfWiderHeadsInPlace) {
  Tensor<Bf16, 3> heads = source_.NormalBf16<3>({5, 3, 192});
  const Tensor<Bf16, 3> before = heads;
  const Cube<Bf16> rope = heads.view().Columns(128, 64);
  ASSERT_TRUE(
      Rope({.layout = RopeLayout::kInterleaved, .x = rope, .positions = positions_, .table = table_, .y = rope}).ok());
  Tensor<Bf16, 3> untouched = before;
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t head = 0; head < 3; ++head) {
      for (int64_t d = 0; d < 128; ++d) EXPECT_EQ(heads.at(row, head, d), untouched.at(row, head, d));
      for (int64_t d = 128; row == 0 && d < 192; ++d) EXPECT_EQ(heads.at(row, head, d), untouched.at(row, head, d));
    }
  }
  EXPECT_FALSE(heads == before);
}

TEST_F(RopeTest, RefusesPositionsBeyondTheTable) {
  Tensor<Bf16, 3> x({5, 1, 64});
  positions_[3] = 4200;
  EXPECT_EQ(
      Rope({.layout = RopeLayout::kHalfSplit, .x = x, .positions = positions_, .table = table_, .y = x}).message(),
      "Rope: positions[3] is 4200, must be in [0, 4200)");
}

}  // namespace
}  // namespace tandem::kernels

// Proves the absorbed projections against double and against their stated order bit for bit, and rows' independence.
#include <cmath>

#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

constexpr int64_t kRows = 37, kHeads = 3, kNope = 80, kV = 48, kLatent = 512;

// kv_b_proj as the model keeps it: per head kNope rows of W_UK, then kV rows of W_UV.
class MlaTest : public testing::Test {
 protected:
  Cube<const Bf16> Part(int64_t begin, int64_t count) {
    return Cube<const Bf16>(kv_b_.view().data + begin * kLatent, {kHeads, count, kLatent},
                            {(kNope + kV) * kLatent, kLatent, 1});
  }
  double W(int64_t head, int64_t row, int64_t column) { return ToFloat(kv_b_.at(head * (kNope + kV) + row, column)); }

  Source source_{1};
  Tensor<Bf16, 2> kv_b_ = source_.NormalBf16<2>({kHeads * (kNope + kV), kLatent}, 0.05f);
};

TEST_F(MlaTest, AbsorbedQueryIsTheTransposedProduct) {
  Tensor<Bf16, 3> q = source_.NormalBf16<3>({kRows, kHeads, kNope + 64});
  Tensor<Bf16, 3> q_latent({kRows, kHeads, kLatent});
  ASSERT_TRUE(
      MlaAbsorbQuery({.q_nope = q.view().Columns(0, kNope), .w_uk = Part(0, kNope), .q_latent = q_latent}).ok());
  std::vector<double> exact;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t c = 0; c < kLatent; ++c) {
        double sum = 0;
        for (int64_t d = 0; d < kNope; ++d) sum += ToFloat(q.at(row, head, d)) * W(head, d, c);
        exact.push_back(sum);
      }
    }
  }
  EXPECT_LT(Difference(ToDoubles(q_latent), exact), 3e-6);  // one BF16 rounding
}

TEST_F(MlaTest, UnabsorbedOutputIsTheProduct) {
  Tensor<Bf16, 3> latent_out = source_.NormalBf16<3>({kRows, kHeads, kLatent});
  Tensor<Bf16, 3> out({kRows, kHeads, kV});
  ASSERT_TRUE(MlaUnabsorbOutput({.latent_out = latent_out, .w_uv = Part(kNope, kV), .out = out}).ok());
  std::vector<double> exact;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t v = 0; v < kV; ++v) {
        double sum = 0;
        for (int64_t c = 0; c < kLatent; ++c) sum += ToFloat(latent_out.at(row, head, c)) * W(head, kNope + v, c);
        exact.push_back(sum);
      }
    }
  }
  EXPECT_LT(Difference(ToDoubles(out), exact), 3e-6);
}

TEST_F(MlaTest, SumInTheDocumentedOrder) {
  Tensor<Bf16, 3> q = source_.NormalBf16<3>({2, kHeads, kNope}), q_latent({2, kHeads, kLatent});
  Tensor<Bf16, 3> latent_out = source_.NormalBf16<3>({2, kHeads, kLatent}), out({2, kHeads, kV});
  ASSERT_TRUE(MlaAbsorbQuery({.q_nope = q, .w_uk = Part(0, kNope), .q_latent = q_latent}).ok());
  ASSERT_TRUE(MlaUnabsorbOutput({.latent_out = latent_out, .w_uv = Part(kNope, kV), .out = out}).ok());
  const auto w = [&](int64_t head, int64_t row, int64_t c) { return static_cast<float>(W(head, row, c)); };
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t c = 0; c < kLatent; ++c) {
        float sum = 0;
        for (int64_t d = 0; d < kNope; d += 2) {
          sum = std::fma(ToFloat(q.at(row, head, d + 1)), w(head, d + 1, c), sum);
          sum = std::fma(ToFloat(q.at(row, head, d)), w(head, d, c), sum);
        }
        ASSERT_EQ(q_latent.at(row, head, c), ToBf16(sum));
      }
      for (int64_t v = 0; v < kV; ++v) {
        const float sum = DotSum(
            kLatent, [&](int64_t c) { return ToFloat(latent_out.at(row, head, c)); },
            [&](int64_t c) { return w(head, kNope + v, c); });
        ASSERT_EQ(out.at(row, head, v), ToBf16(sum));
      }
    }
  }
}

TEST_F(MlaTest, RowsAreIndependent) {
  Tensor<Bf16, 3> q = source_.NormalBf16<3>({kRows, kHeads, kNope});
  Tensor<Bf16, 3> q_together({kRows, kHeads, kLatent}), q_alone({kRows, kHeads, kLatent});
  Tensor<Bf16, 3> o_together({kRows, kHeads, kV}), o_alone({kRows, kHeads, kV});
  ASSERT_TRUE(MlaAbsorbQuery({.q_nope = q, .w_uk = Part(0, kNope), .q_latent = q_together}).ok());
  ASSERT_TRUE(MlaUnabsorbOutput({.latent_out = q_together, .w_uv = Part(kNope, kV), .out = o_together}).ok());
  for (int64_t row = 0; row < kRows; ++row) {
    const Cube<Bf16> q_row = q_alone.view().Slice(row, 1);
    ASSERT_TRUE(MlaAbsorbQuery({.q_nope = q.view().Slice(row, 1), .w_uk = Part(0, kNope), .q_latent = q_row}).ok());
    ASSERT_TRUE(
        MlaUnabsorbOutput({.latent_out = q_row, .w_uv = Part(kNope, kV), .out = o_alone.view().Slice(row, 1)}).ok());
  }
  EXPECT_TRUE(q_together == q_alone);
  EXPECT_TRUE(o_together == o_alone);
}

TEST_F(MlaTest, RefusesWeightsOfAnotherShape) {
  Tensor<Bf16, 3> q({1, kHeads, kNope}), q_latent({1, kHeads, kLatent});
  EXPECT_EQ(MlaAbsorbQuery({.q_nope = q, .w_uk = Part(0, kNope - 16), .q_latent = q_latent}).message(),
            "MlaAbsorbQuery: w_uk is [3, 64, 512], must be [3, 80, 512]");
}

}  // namespace
}  // namespace tandem::kernels

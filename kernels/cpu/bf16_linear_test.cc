// Proves the BF16 linears against double and against a scalar statement of their order; rows stay independent.
#include <cmath>

#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

struct Problem {
  Problem(uint32_t seed, int64_t rows, int64_t out_dim, int64_t in_dim)
      : source(seed),
        x(source.NormalBf16<2>({rows, in_dim})),
        weight(source.NormalBf16<2>({out_dim, in_dim}, 1 / std::sqrt(static_cast<float>(in_dim)))) {}
  float InOrder(int64_t m, int64_t n, int64_t begin, int64_t end) {
    return DotSum(
        end - begin, [&](int64_t k) { return ToFloat(x.at(m, begin + k)); },
        [&](int64_t k) { return ToFloat(weight.at(n, begin + k)); });
  }
  Source source;
  Tensor<Bf16, 2> x;
  Tensor<Bf16, 2> weight;
};

TEST(Bf16LinearTest, Fp32ResultIsCloseToDoubleAndInTheDocumentedOrder) {
  for (int64_t in_dim : {16, 176, 384}) {
    Problem problem(1, 6, 75, in_dim);
    Tensor<float, 2> y({6, 75});
    ASSERT_TRUE(Bf16LinearF32({.x = problem.x, .weight = problem.weight, .y = y}).ok());
    std::vector<double> exact;
    for (int64_t m = 0; m < 6; ++m) {
      for (int64_t n = 0; n < 75; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < in_dim; ++k) {
          sum += double{ToFloat(problem.x.at(m, k))} * ToFloat(problem.weight.at(n, k));
        }
        exact.push_back(sum);
        ASSERT_EQ(y.at(m, n), problem.InOrder(m, n, 0, in_dim)) << in_dim;
      }
    }
    EXPECT_LT(Difference(ToDoubles(y), exact), 1e-12);
  }
}

TEST(Bf16LinearTest, Bf16ResultIsTheFp32OneRoundedOnce) {
  Problem problem(2, 40, 64, 384);
  Tensor<float, 2> wide({40, 64});
  Tensor<Bf16, 2> y({40, 64});
  ASSERT_TRUE(Bf16LinearF32({.x = problem.x, .weight = problem.weight, .y = wide}).ok());
  ASSERT_TRUE(Bf16Linear({.x = problem.x, .weight = problem.weight, .y = y}).ok());
  for (int64_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], ToBf16(wide[i]));
}

TEST(Bf16LinearTest, SegmentsAreAddedAsATree) {
  Problem problem(3, 2, 33, 1024);
  Tensor<Bf16, 2> y({2, 33});
  ASSERT_TRUE(Bf16Linear({.x = problem.x, .weight = problem.weight, .k_segments = 4, .y = y}).ok());
  for (int64_t m = 0; m < 2; ++m) {
    for (int64_t n = 0; n < 33; ++n) {
      const float left = problem.InOrder(m, n, 0, 256) + problem.InOrder(m, n, 256, 512);
      const float right = problem.InOrder(m, n, 512, 768) + problem.InOrder(m, n, 768, 1024);
      ASSERT_EQ(y.at(m, n), ToBf16(left + right));
    }
  }
}

TEST(Bf16LinearTest, ARowsBitsDoNotDependOnTheBatch) {
  Problem problem(4, 67, 48, 256);
  Tensor<float, 2> together({67, 48}), alone({67, 48});
  ASSERT_TRUE(Bf16LinearF32({.x = problem.x, .weight = problem.weight, .y = together}).ok());
  for (int64_t row = 0; row < 67; ++row) {
    ASSERT_TRUE(
        Bf16LinearF32({.x = problem.x.view().Slice(row, 1), .weight = problem.weight, .y = alone.view().Slice(row, 1)})
            .ok());
  }
  EXPECT_TRUE(together == alone);
}

TEST(Bf16LinearTest, RefusesBadShapes) {
  Problem problem(5, 2, 3, 32);
  Tensor<float, 2> y({2, 4});
  EXPECT_EQ(Bf16LinearF32({.x = problem.x, .weight = problem.weight, .y = y}).message(),
            "Bf16LinearF32: y is [2, 4], must be [2, 3]");
  Problem odd(6, 2, 3, 24);
  Tensor<Bf16, 2> narrow({2, 3});
  EXPECT_EQ(Bf16Linear({.x = odd.x, .weight = odd.weight, .y = narrow}).message(),
            "Bf16Linear: in_dim is 24, must be a positive multiple of 16");
}

}  // namespace
}  // namespace tandem::kernels

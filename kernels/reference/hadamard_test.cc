// Proves the transform against its definition by popcounts, exactly where the sums are exact.
#include <bit>
#include <cmath>

#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

TEST(HadamardTest, IsTheSignedSumOfItsDefinition) {
  Source source(1);
  Tensor<Bf16, 3> x({4, 3, 128});
  // Integers up to 2^7: sums stay exact in FP32, so only the last product rounds, to FP32 and to BF16.
  for (Bf16& value : x.values()) value = ToBf16(static_cast<float>(source.Below(257) - 128));
  Tensor<Bf16, 3> y({4, 3, 128});
  ASSERT_TRUE(Hadamard128({.x = x, .y = y}).ok());
  for (int64_t head = 0; head < 12; ++head) {
    for (uint32_t i = 0; i < 128; ++i) {
      double sum = 0;
      for (uint32_t j = 0; j < 128; ++j) {
        sum += (std::popcount(i & j) % 2 == 0 ? 1 : -1) * ToFloat(x[head * 128 + j]);
      }
      const float norm = static_cast<float>(1 / std::sqrt(128.0));
      EXPECT_EQ(y[head * 128 + i], ToBf16(static_cast<float>(sum) * norm)) << head << " " << i;
    }
  }
}

TEST(HadamardTest, TwiceIsTheIdentityUpToRounding) {
  Source source(2);
  Tensor<Bf16, 3> x = source.NormalBf16<3>({5, 2, 128});
  Tensor<Bf16, 3> y = x;
  ASSERT_TRUE(Hadamard128({.x = y, .y = y}).ok());
  EXPECT_GT(Difference(ToDoubles(x), ToDoubles(y)), 0.1);
  ASSERT_TRUE(Hadamard128({.x = y, .y = y}).ok());
  EXPECT_LT(Difference(ToDoubles(x), ToDoubles(y)), 1e-5);
}

TEST(HadamardTest, RefusesOtherWidths) {
  Tensor<Bf16, 3> x({1, 1, 64});
  EXPECT_EQ(Hadamard128({.x = x, .y = x}).message(), "Hadamard128: x is [1, 1, 64], must be [1, 1, 128]");
}

}  // namespace
}  // namespace tandem::kernels

// Proves SwiGlu against double to one ulp, including gates far from zero, and in place.
#include <cmath>

#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

TEST(SwiGluTest, IsWithinOneUlpOfDouble) {
  Source source(1);
  for (float deviation : {0.1f, 3.0f, 40.0f}) {
    Tensor<Bf16, 2> gate = source.NormalBf16<2>({9, 128}, deviation);
    Tensor<Bf16, 2> up = source.NormalBf16<2>({9, 128});
    Tensor<Bf16, 2> y({9, 128});
    ASSERT_TRUE(SwiGlu({.gate = gate, .up = up, .y = y}).ok());
    for (int64_t i = 0; i < y.size(); ++i) {
      const double z = ToFloat(gate[i]);
      const double exact = z / (1 + std::exp(-z)) * ToFloat(up[i]);
      // Below exp(-86) the gate closes to an exact zero.
      if (z > -86) {
        EXPECT_LE(UlpDistance(y[i], ToBf16(static_cast<float>(exact))), 1) << z;
      } else {
        EXPECT_LT(std::abs(ToFloat(y[i])), 1e-30);
      }
    }
    ASSERT_TRUE(SwiGlu({.gate = gate, .up = up, .y = gate}).ok());
    EXPECT_TRUE(gate == y);
  }
}

TEST(SwiGluTest, ExtremeGatesStayFinite) {
  Tensor<Bf16, 2> gate({1, 16}), up({1, 16}), y({1, 16});
  for (int64_t i = 0; i < 16; ++i) {
    gate[i] = ToBf16(i % 2 == 0 ? 3e38f : -3e38f);
    up[i] = ToBf16(1.0f);
  }
  ASSERT_TRUE(SwiGlu({.gate = gate, .up = up, .y = y}).ok());
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(ToFloat(y[i]), i % 2 == 0 ? ToFloat(gate[i]) : 0.0f);
}

}  // namespace
}  // namespace tandem::kernels

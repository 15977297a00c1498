// Proves that gathering copies bits and that argmax breaks ties and NaN as promised.
#include <limits>

#include "kernels/op_testing.h"

namespace tandem::kernels {
namespace {

TEST(GatherRowsTest, CopiesRowsBitForBit) {
  Tensor<Bf16, 2> table({4, 5});
  for (int64_t i = 0; i < 20; ++i) table[i] = Bf16{static_cast<uint16_t>(0x7f90 + i)};  // NaN payloads included
  Tensor<int32_t, 1> rows({3});
  rows.values() = {3, 0, 3};
  Tensor<Bf16, 2> out({3, 5});
  ASSERT_TRUE(GatherRows({.table = table, .rows = rows, .out = out}).ok());
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t k = 0; k < 5; ++k) EXPECT_EQ(out.at(i, k), table.at(rows[i], k));
  }
  rows[1] = 4;
  EXPECT_EQ(GatherRows({.table = table, .rows = rows, .out = out}).message(),
            "GatherRows: rows[1] is 4, must be in [0, 4)");
}

TEST(ArgmaxTest, TakesTheLowestOfTheLargest) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  Tensor<float, 2> logits({5, 4});
  logits.values() = {1,   3,        3,   2,          //
                     -5,  -4,       -6,  -4,         //
                     nan, -1e30f,   nan, -infinity,  //
                     nan, nan,      nan, -infinity,  //
                     0,   infinity, 1,   infinity};
  Tensor<int32_t, 1> tokens({5});
  ASSERT_TRUE(Argmax({.logits = logits, .tokens = tokens}).ok());
  EXPECT_EQ(tokens.values(), (std::vector<int32_t>{1, 1, 1, 0, 1}));
}

TEST(OpsTest, ZeroRowsDoNothing) {
  Tensor<Bf16, 2> empty({0, 32});
  Tensor<Bf16, 1> weight({32});
  EXPECT_TRUE(RmsNorm({.x = empty, .weight = weight, .y = empty}).ok());
  Tensor<float, 2> no_logits({0, 8});
  Tensor<int32_t, 1> no_tokens({0});
  EXPECT_TRUE(Argmax({.logits = no_logits, .tokens = no_tokens}).ok());
}

}  // namespace
}  // namespace tandem::kernels

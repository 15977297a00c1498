// Proves that faults are named exactly and that the first one wins.
#include "kernels/op_border.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::kernels {
namespace {

TEST(OpBorderTest, AcceptsWhatFits) {
  std::vector<float> values(6);
  OpBorder border("Op");
  border.Shape("x", Matrix<float>(values.data(), {2, 3}), {2, 3})
      .Shape("empty", Matrix<float>(nullptr, {0, 3}), {0, 3})
      .Shape("wide rows", Matrix<float>(values.data(), {2, 2}, {3, 1}), {2, 2})
      .Require(true, "dim", 3, "3");
  EXPECT_TRUE(border.ok()) << border.status();
}

TEST(OpBorderTest, NamesOpArgumentShapeAndExpectation) {
  std::vector<float> values(6);
  OpBorder border("RmsNorm");
  border.Shape("y", Matrix<float>(values.data(), {2, 3}), {2, 128});
  EXPECT_EQ(border.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(border.status().message(), "RmsNorm: y is [2, 3], must be [2, 128]");
}

TEST(OpBorderTest, RefusesMissingMemoryAndStridedInnerDimension) {
  OpBorder missing("Op");
  missing.Shape("x", Matrix<float>(nullptr, {2, 3}), {2, 3});
  EXPECT_EQ(missing.status().message(), "Op: x is null, must be memory");
  std::vector<float> values(12);
  OpBorder strided("Op");
  strided.Shape("x", Matrix<float>(values.data(), {2, 3}, {6, 2}), {2, 3});
  EXPECT_EQ(strided.status().message(), "Op: x last stride is 2, must be 1");
}

TEST(OpBorderTest, NamesTheFirstIdOutOfRange) {
  std::vector<int32_t> ids = {0, 4, 5, -1};
  OpBorder border("Op");
  border.Ids("rows", Vector<const int32_t>(ids.data(), {4}), 0, 5);
  EXPECT_EQ(border.status().message(), "Op: rows[2] is 5, must be in [0, 5)");
  OpBorder matrix("Op");
  matrix.Ids("ids", Matrix<const int32_t>(ids.data(), {2, 2}), 0, 6);
  EXPECT_EQ(matrix.status().message(), "Op: ids[1] is -1, must be in [0, 6)");
}

TEST(OpBorderTest, KeepsTheFirstFault) {
  OpBorder border("Op");
  border.Require(false, "dim", 7, "a multiple of 16").Require(false, "later", 1, "2");
  EXPECT_EQ(border.status().message(), "Op: dim is 7, must be a multiple of 16");
}

}  // namespace
}  // namespace tandem::kernels

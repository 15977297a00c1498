// Proves that each way to cut a view addresses the same memory as plain index arithmetic.
#include "kernels/tensor_view.h"

#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::kernels {
namespace {

std::vector<int> Iota(int count) {
  std::vector<int> values(count);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(TensorViewTest, IsRowMajorWithoutGapsByDefault) {
  std::vector<int> values = Iota(2 * 3 * 4);
  const Cube<int> cube(values.data(), {2, 3, 4});
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) EXPECT_EQ(cube.Row(i, j)[k], (i * 3 + j) * 4 + k);
    }
  }
  EXPECT_EQ(cube.num_elements(), 24);
}

TEST(TensorViewTest, ColumnsAndSplitLastFindTheHeadsOfAProjection) {
  constexpr int kRows = 5, kHeads = 3, kNope = 4, kRope = 2;
  std::vector<int> values = Iota(kRows * kHeads * (kNope + kRope));
  const Matrix<int> projection(values.data(), {kRows, kHeads * (kNope + kRope)});
  const Cube<int> heads = projection.SplitLast(kNope + kRope);
  const Cube<int> rope = heads.Columns(kNope, kRope);
  EXPECT_EQ(heads.shape, (Cube<int>::Dims{kRows, kHeads, kNope + kRope}));
  EXPECT_EQ(rope.shape, (Cube<int>::Dims{kRows, kHeads, kRope}));
  for (int row = 0; row < kRows; ++row) {
    for (int head = 0; head < kHeads; ++head) {
      EXPECT_EQ(rope.Row(row, head)[1], row * kHeads * 6 + head * 6 + kNope + 1);
      EXPECT_EQ(rope.At(row).Row(head), rope.Row(row, head));
    }
  }
}

TEST(TensorViewTest, SliceKeepsStrides) {
  std::vector<int> values = Iota(6 * 8);
  const Matrix<int> left = Matrix<int>(values.data(), {6, 8}).Columns(0, 3);
  const Matrix<int> rows = left.Slice(2, 2);
  EXPECT_EQ(rows.shape, (Matrix<int>::Dims{2, 3}));
  EXPECT_EQ(rows.Row(1)[2], 3 * 8 + 2);
}

TEST(TensorViewTest, WritableConvertsToReadable) {
  std::vector<int> values = Iota(6);
  const Matrix<int> writable(values.data(), {2, 3});
  const Matrix<const int> readable = writable;
  EXPECT_EQ(readable.Row(1), values.data() + 3);
}

}  // namespace
}  // namespace tandem::kernels

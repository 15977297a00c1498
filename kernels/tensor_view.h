// A typed window onto memory that somebody else owns: pointer, shape, strides.
//
// Element type and rank are part of the type, so a wrong dtype does not compile; shapes are checked by each op at its
// border. Strides count elements; the last dimension is always contiguous. A view is a value: copy it freely.
// Tested by tensor_view_test.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tandem::kernels {

template <typename T, size_t kRank>
struct TensorView {
  static_assert(kRank >= 1);
  using Dims = std::array<int64_t, kRank>;

  T* data = nullptr;
  Dims shape{};
  Dims strides{};  // in elements

  TensorView() = default;
  // Row-major without gaps.
  TensorView(T* data, const Dims& shape) : data(data), shape(shape) {
    int64_t stride = 1;
    for (size_t i = kRank; i-- > 0;) {
      strides[i] = stride;
      stride *= shape[i];
    }
  }
  TensorView(T* data, const Dims& shape, const Dims& strides) : data(data), shape(shape), strides(strides) {}
  // A view to read through, of a view to write through.
  template <typename U>
  requires(std::is_same_v<const U, T>)
      TensorView(const TensorView<U, kRank>& other)  // NOLINT(google-explicit-constructor)
      : data(other.data), shape(other.shape), strides(other.strides) {}

  bool is_null() const { return data == nullptr; }
  int64_t num_elements() const {
    int64_t count = 1;
    for (int64_t dim : shape) count *= dim;
    return count;
  }

  // Start of the innermost row with the given leading indices: Row(i) of a matrix, Row(i, j) of rank 3.
  template <typename... Index>
  requires(sizeof...(Index) == kRank - 1) T* Row(Index... index) const {
    T* row = data;
    size_t dim = 0;
    ((row += static_cast<int64_t>(index) * strides[dim++]), ...);
    return row;
  }

  // Rows [begin, begin + count) of the first dimension.
  TensorView Slice(int64_t begin, int64_t count) const {
    TensorView slice = *this;
    slice.data += begin * strides[0];
    slice.shape[0] = count;
    return slice;
  }
  // Elements [begin, begin + count) of the last dimension: the strides stay, so this is how parts of a concatenated
  // row are read and written in place.
  TensorView Columns(int64_t begin, int64_t count) const {
    TensorView columns = *this;
    columns.data += begin;
    columns.shape[kRank - 1] = count;
    return columns;
  }
  // The index-th tensor of the first dimension.
  TensorView<T, kRank - 1> At(int64_t index) const requires(kRank >= 2) {
    TensorView<T, kRank - 1> inner;
    inner.data = data + index * strides[0];
    for (size_t i = 1; i < kRank; ++i) {
      inner.shape[i - 1] = shape[i];
      inner.strides[i - 1] = strides[i];
    }
    return inner;
  }
  // [rows, groups * width] seen as [rows, groups, width]: heads of a projection.
  TensorView<T, kRank + 1> SplitLast(int64_t width) const {
    TensorView<T, kRank + 1> split;
    split.data = data;
    for (size_t i = 0; i < kRank; ++i) {
      split.shape[i] = shape[i];
      split.strides[i] = strides[i];
    }
    split.shape[kRank - 1] = shape[kRank - 1] / width;
    split.strides[kRank - 1] = width;
    split.shape[kRank] = width;
    split.strides[kRank] = 1;
    return split;
  }
};

template <typename T>
using Vector = TensorView<T, 1>;
template <typename T>
using Matrix = TensorView<T, 2>;
template <typename T>
using Cube = TensorView<T, 3>;

}  // namespace tandem::kernels

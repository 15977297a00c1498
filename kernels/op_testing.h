// What op tests share: tensors that own memory, seeded values, and the specification's error measures.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/dtypes.h"
#include "kernels/ops.h"
#include "kernels/tensor_view.h"
#include "kvcache/kv_layout.h"

namespace tandem::kernels {

// Row-major storage with a view on it. Converts to views, so that it can stand in an args struct.
template <typename T, size_t kRank>
class Tensor {
 public:
  explicit Tensor(const std::array<int64_t, kRank>& shape)
      : values_(static_cast<size_t>(TensorView<T, kRank>(nullptr, shape).num_elements())), shape_(shape) {}
  TensorView<T, kRank> view() { return TensorView<T, kRank>(values_.data(), shape_); }
  operator TensorView<T, kRank>() { return view(); }        // NOLINT(google-explicit-constructor)
  operator TensorView<const T, kRank>() { return view(); }  // NOLINT(google-explicit-constructor)
  T& operator[](int64_t i) { return values_[static_cast<size_t>(i)]; }
  template <typename... Index>
  T& at(Index... index) {
    const std::array<int64_t, kRank> position = {static_cast<int64_t>(index)...};
    int64_t flat = 0;
    for (size_t dim = 0; dim < kRank; ++dim) flat = flat * shape_[dim] + position[dim];
    return values_[static_cast<size_t>(flat)];
  }
  int64_t size() const { return static_cast<int64_t>(values_.size()); }
  int64_t dim(size_t i) const { return shape_[i]; }
  std::vector<T>& values() { return values_; }
  // Same shape, same bytes.
  bool operator==(const Tensor& other) const {
    return shape_ == other.shape_ && std::memcmp(values_.data(), other.values_.data(), values_.size() * sizeof(T)) == 0;
  }

 private:
  std::vector<T> values_;
  std::array<int64_t, kRank> shape_;
};

class Source {
 public:
  explicit Source(uint32_t seed) : random_(seed) {}
  float Normal(float deviation = 1) { return std::normal_distribution<float>(0, deviation)(random_); }
  float Uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(random_); }
  int64_t Below(int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random_); }

  template <size_t kRank>
  Tensor<Bf16, kRank> NormalBf16(const std::array<int64_t, kRank>& shape, float deviation = 1) {
    Tensor<Bf16, kRank> tensor(shape);
    for (Bf16& value : tensor.values()) value = ToBf16(Normal(deviation));
    return tensor;
  }
  template <size_t kRank>
  Tensor<float, kRank> NormalF32(const std::array<int64_t, kRank>& shape, float deviation = 1) {
    Tensor<float, kRank> tensor(shape);
    for (float& value : tensor.values()) value = Normal(deviation);
    return tensor;
  }
  template <size_t kRank>
  Tensor<E4m3, kRank> NormalE4m3(const std::array<int64_t, kRank>& shape, float deviation = 50) {
    Tensor<E4m3, kRank> tensor(shape);
    for (E4m3& value : tensor.values()) value = ToE4m3(Normal(deviation));
    return tensor;
  }
  template <size_t kRank>
  Tensor<float, kRank> PowersOfTwo(const std::array<int64_t, kRank>& shape, int low, int high) {
    Tensor<float, kRank> tensor(shape);
    for (float& value : tensor.values()) value = std::ldexp(1.0f, low + static_cast<int>(Below(high - low + 1)));
    return tensor;
  }
  std::vector<int32_t> Permutation(int count) {
    std::vector<int32_t> order(static_cast<size_t>(count));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }

 private:
  std::mt19937 random_;
};

// The documented order of a sum along a contiguous axis, in scalars: term(k) goes to lane k mod 16, then the tree.
template <typename Term>
float LaneSum(int64_t count, const Term& term) {
  float lanes[16] = {};
  for (int64_t k = 0; k < count; ++k) lanes[k % 16] += term(k);
  for (int half = 8; half >= 1; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

// The documented order of a dot product of BF16 values, in scalars: pairs (2p + 1, then 2p) to lane p mod 16, then the
// tree. An odd number of groups of 16 goes on with zeros, which change nothing where no sum is -0.
template <typename X, typename W>
float DotSum(int64_t count, const X& x, const W& w) {
  float lanes[16] = {};
  for (int64_t k = 0; k < count; k += 2) {
    lanes[k / 2 % 16] = std::fma(x(k + 1), w(k + 1), lanes[k / 2 % 16]);
    lanes[k / 2 % 16] = std::fma(x(k), w(k), lanes[k / 2 % 16]);
  }
  for (int half = 8; half >= 1; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

// Memory for an op, aligned as all ask.
class OpWorkspace {
 public:
  explicit OpWorkspace(int64_t num_bytes) : bytes_(static_cast<size_t>(num_bytes) + 64) {}
  absl::Span<std::byte> span() {
    void* start = bytes_.data();
    size_t space = bytes_.size();
    std::align(64, 1, start, space);
    return {static_cast<std::byte*>(start), bytes_.size() - 64};
  }

 private:
  std::vector<std::byte> bytes_;
};

// 1 - 2<x, y> / (|x|^2 + |y|^2): zero for equal vectors, about half the squared relative error for close ones.
inline double Difference(const std::vector<double>& x, const std::vector<double>& y) {
  double product = 0;
  double squares = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    product += x[i] * y[i];
    squares += x[i] * x[i] + y[i] * y[i];
  }
  return squares == 0 ? 0 : 1 - 2 * product / squares;
}

template <typename T, size_t kRank>
std::vector<double> ToDoubles(Tensor<T, kRank>& tensor) {
  std::vector<double> values;
  for (const T& value : tensor.values()) {
    if constexpr (std::is_same_v<T, float>) {
      values.push_back(value);
    } else {
      values.push_back(ToFloat(value));
    }
  }
  return values;
}

// How many BF16 values lie between two, through zero where the signs differ.
inline int UlpDistance(Bf16 a, Bf16 b) {
  const auto ordinal = [](Bf16 v) { return (v.bits & 0x8000) != 0 ? -(v.bits & 0x7fff) : v.bits & 0x7fff; };
  return std::abs(ordinal(a) - ordinal(b));
}

// Every element is within max_ulp BF16 values of the exact result.
template <size_t kRank>
void ExpectWithinUlp(Tensor<Bf16, kRank>& actual, const std::vector<double>& exact, int max_ulp) {
  ASSERT_EQ(actual.values().size(), exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    const Bf16 value = actual.values()[i];
    EXPECT_LE(UlpDistance(value, ToBf16(static_cast<float>(exact[i]))), max_ulp)
        << "element " << i << ": " << ToFloat(value) << " against " << exact[i];
  }
}

// Sequences over a pool of pages, with pages handed out in a given order.
struct PagedFixture {
  // contexts: of each row; sequence_of: of each row. pool_order: which physical pages to use, in order of need.
  PagedFixture(const std::vector<int32_t>& contexts, const std::vector<int32_t>& sequence_of,
               const std::vector<int32_t>& pool_order)
      : context_length({static_cast<int64_t>(contexts.size())}),
        sequence({static_cast<int64_t>(contexts.size())}),
        page_tables({1 + *std::max_element(sequence_of.begin(), sequence_of.end()),
                     kvcache::PagesForTokens(*std::max_element(contexts.begin(), contexts.end()))}) {
    context_length.values() = contexts;
    sequence.values() = sequence_of;
    size_t next = 0;
    for (int32_t& page : page_tables.values()) page = pool_order[next++];
  }
  PagedRows rows() { return {.page_tables = page_tables, .sequence = sequence, .context_length = context_length}; }
  int32_t PageOf(int64_t sequence_index, int64_t position) {
    return page_tables.at(sequence_index, position / kvcache::kPageTokens);
  }

  Tensor<int32_t, 1> context_length;
  Tensor<int32_t, 1> sequence;
  Tensor<int32_t, 2> page_tables;
};

}  // namespace tandem::kernels

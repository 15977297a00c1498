// What the device tests and benchmarks of the linear layers share: large operands filled fast. Values come from a table
// of normal ones, so that the weights of a real layer take a fraction of a second.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/dtypes.h"
#include "kernels/op_testing.h"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {

class FastSource {
 public:
  explicit FastSource(uint32_t seed) : state_(seed * 2654435761u + 1), source_(seed) {
    for (size_t i = 0; i < kTable; ++i) {
      const float value = source_.Normal();
      e4m3_[i] = ToE4m3(value * 64);  // the full range
      bf16_[i] = ToBf16(value);
    }
  }
  template <size_t kRank>
  Tensor<E4m3, kRank> NormalE4m3(const std::array<int64_t, kRank>& shape) {
    return Fill<E4m3, kRank>(shape, e4m3_);
  }
  template <size_t kRank>
  Tensor<Bf16, kRank> NormalBf16(const std::array<int64_t, kRank>& shape) {
    return Fill<Bf16, kRank>(shape, bf16_);
  }
  // Of activations or weights, in a checkpoint's range: products with E4M3 values are near 1.
  Tensor<float, 2> Scales(const std::array<int64_t, 2>& shape, ScaleFormat format) {
    if (format == ScaleFormat::kUe8m0) return source_.PowersOfTwo<2>(shape, -10, -5);
    Tensor<float, 2> scales(shape);
    for (float& scale : scales.values()) scale = source_.Uniform(0.002f, 0.02f);
    return scales;
  }
  Source& source() { return source_; }

 private:
  static constexpr size_t kTable = 4096;

  template <typename T, size_t kRank>
  Tensor<T, kRank> Fill(const std::array<int64_t, kRank>& shape, const std::array<T, kTable>& table) {
    Tensor<T, kRank> tensor(shape);
    for (T& value : tensor.values()) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      value = table[state_ >> 52];
    }
    return tensor;
  }

  uint64_t state_;
  Source source_;
  std::array<E4m3, kTable> e4m3_;
  std::array<Bf16, kTable> bf16_;
};

}  // namespace tandem::kernels::cuda

// Lets a test see the tensors between the ops of a forward pass. Costs one comparison per stage where there is none.
//
// Stages are named "L<layer>.<stage>" and "final_hidden"; tools/reference/README.md lists shapes and types.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/dtypes.h"
#include "kernels/tensor_view.h"
#include "model/safetensors.h"

namespace tandem::model {

// The tensor's bytes live during the call.
using TensorTap = std::function<void(const Tensor& tensor)>;

namespace tensor_tap_internal {

template <typename T>
constexpr DType DTypeOf() {
  using Element = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Element, kernels::Bf16>) {
    return DType::kBf16;
  } else if constexpr (std::is_same_v<Element, kernels::E4m3>) {
    return DType::kF8E4m3;
  } else if constexpr (std::is_same_v<Element, float>) {
    return DType::kF32;
  } else {
    static_assert(std::is_same_v<Element, int32_t>);
    return DType::kI32;
  }
}

template <typename T>
void Append(const kernels::TensorView<T, 1>& view, std::vector<uint8_t>& bytes) {
  const auto* first = reinterpret_cast<const uint8_t*>(view.data);
  bytes.insert(bytes.end(), first, first + view.shape[0] * sizeof(T));
}
template <typename T, size_t kRank>
void Append(const kernels::TensorView<T, kRank>& view, std::vector<uint8_t>& bytes) {
  for (int64_t i = 0; i < view.shape[0]; ++i) Append(view.At(i), bytes);
}

}  // namespace tensor_tap_internal

template <typename T, size_t kRank>
void ShowTensor(const TensorTap& tap, absl::string_view name, const kernels::TensorView<T, kRank>& view) {
  if (!tap) [[likely]] {
    return;
  }
  std::vector<uint8_t> bytes;
  tensor_tap_internal::Append(view, bytes);
  tap(Tensor{std::string(name), tensor_tap_internal::DTypeOf<T>(), {view.shape.begin(), view.shape.end()}, bytes});
}

template <typename T, size_t kRank>
void ShowStage(const TensorTap& tap, int layer, absl::string_view stage, const kernels::TensorView<T, kRank>& view) {
  if (tap) [[unlikely]] {
    ShowTensor(tap, absl::StrCat("L", layer, ".", stage), view);
  }
}

}  // namespace tandem::model

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

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
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

// A view of host memory.
template <typename T, size_t kRank>
void ShowHostTensor(const TensorTap& tap, absl::string_view name, const kernels::TensorView<T, kRank>& view) {
  std::vector<uint8_t> bytes;
  tensor_tap_internal::Append(view, bytes);
  tap(Tensor{std::string(name), tensor_tap_internal::DTypeOf<T>(), {view.shape.begin(), view.shape.end()}, bytes});
}

// The view itself where the backend's memory is the host's, else one of a copy in `storage`, gaps between rows
// included.
template <typename T, size_t kRank>
absl::StatusOr<kernels::TensorView<const T, kRank>> DownloadView(kernels::Backend& backend,
                                                                 const kernels::TensorView<const T, kRank>& view,
                                                                 std::vector<T>& storage) {
  if (backend.is_host() || view.num_elements() == 0) return view;
  int64_t last = 0;
  for (size_t i = 0; i < kRank; ++i) last += (view.shape[i] - 1) * view.strides[i];
  storage.resize(last + 1);
  absl::Status status = backend.Download({storage.data(), view.data, static_cast<int64_t>(storage.size() * sizeof(T))});
  if (status.ok()) status = backend.Synchronize();
  if (!status.ok()) return status;
  return kernels::TensorView<const T, kRank>(storage.data(), view.shape, view.strides);
}

// A view of the backend's memory; waits for it.
template <typename T, size_t kRank>
absl::Status ShowTensor(const TensorTap& tap, kernels::Backend& backend, absl::string_view name,
                        const kernels::TensorView<T, kRank>& view) {
  using Element = std::remove_const_t<T>;
  std::vector<Element> storage;
  auto on_host = DownloadView<Element, kRank>(backend, view, storage);
  if (!on_host.ok()) return on_host.status();
  ShowHostTensor(tap, name, *on_host);
  return absl::OkStatus();
}

}  // namespace tandem::model

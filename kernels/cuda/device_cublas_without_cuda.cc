#include "kernels/cuda/device_cublas.h"

namespace tandem::kernels::cuda {

struct CublasProduct::State {};

CublasProduct::CublasProduct(std::unique_ptr<State> state) : state_(std::move(state)) {}
CublasProduct::CublasProduct(CublasProduct&&) noexcept = default;
CublasProduct::~CublasProduct() = default;
absl::StatusOr<CublasProduct> CublasProduct::Plan(Format, int64_t, int64_t, int64_t) {
  return absl::UnimplementedError("this build has no CUDA");
}
absl::Status CublasProduct::Launch(Stream, const void*, const float*, const void*, const float*, void*) {
  return absl::UnimplementedError("this build has no CUDA");
}

}  // namespace tandem::kernels::cuda

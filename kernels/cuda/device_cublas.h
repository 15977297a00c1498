// cuBLASLt as a peer to time beside the linear layers: found at run time, never linked, never needed.
// Data are the benchmark's; results are not looked at.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device_memory.h"

namespace tandem::kernels::cuda {

// y = x w^T, row-major as in kernels/ops.h. One plan a shape; num_rows is a multiple of 4 in E4M3.
class CublasProduct final {
 public:
  enum class Format {
    kE4m3,  // y in BF16; scales of x per row and 128 channels as [in_dim / 128, num_rows], of w per 128 x 128
    kBf16,  // y in BF16
    kBf16ToF32,
  };
  // UNAVAILABLE where the machine has no cuBLASLt 13; INTERNAL where it refuses the shape.
  static absl::StatusOr<CublasProduct> Plan(Format format, int64_t num_rows, int64_t out_dim, int64_t in_dim);
  CublasProduct(CublasProduct&&) noexcept;
  ~CublasProduct();

  absl::Status Launch(Stream stream, const void* x, const float* x_scale, const void* w, const float* w_scale, void* y);

 private:
  struct State;
  explicit CublasProduct(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tandem::kernels::cuda

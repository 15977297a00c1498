// What every op does after its launches: turns CUDA's answer into a status. For .cu files only.
#pragma once

#include <cuda_runtime.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem::kernels::cuda {

inline absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error)));
}

// Of the launches since the last call; a sticky error stays CUDA's and ends every later op, too.
inline absl::Status LaunchStatus(absl::string_view op) { return CudaStatus(cudaGetLastError(), op); }

}  // namespace tandem::kernels::cuda

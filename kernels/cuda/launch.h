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

// A grid that may start while the one before it in the stream ends: its kernel says with ptx::WaitForGrids what has to
// wait, and with ptx::LaunchDependents when the next one may start. Not for what follows Backend::JoinBeside.
template <typename... Parameters, typename... Args>
absl::Status LaunchEarly(cudaStream_t stream, absl::string_view op, void (*kernel)(Parameters...), int64_t blocks,
                         int threads, const Args&... args) {
  cudaLaunchAttribute is_early = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
  is_early.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config = {.gridDim = dim3(static_cast<unsigned>(blocks)),
                                     .blockDim = dim3(static_cast<unsigned>(threads)),
                                     .stream = stream,
                                     .attrs = &is_early,
                                     .numAttrs = 1};
  return CudaStatus(cudaLaunchKernelEx(&config, kernel, args...), op);
}

// Of the launches since the last call; a sticky error stays CUDA's and ends every later op, too.
inline absl::Status LaunchStatus(absl::string_view op) { return CudaStatus(cudaGetLastError(), op); }

}  // namespace tandem::kernels::cuda

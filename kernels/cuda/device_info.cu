#include <cuda_runtime.h>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_info.h"

namespace tandem::kernels::cuda {
namespace {

// Never launched: the runtime is asked whether it has an image of it for a device.
__global__ void ProbeKernel() {}

absl::Status StatusOf(cudaError_t error, const char* call) {
  return absl::UnavailableError(absl::StrCat(call, ": ", cudaGetErrorString(error)));
}

bool HasImageFor(int device) {
  cudaFuncAttributes attributes;
  const bool has_image =
      cudaSetDevice(device) == cudaSuccess && cudaFuncGetAttributes(&attributes, ProbeKernel) == cudaSuccess;
  cudaGetLastError();  // the refusal is the answer, not an error of later calls
  return has_image;
}

}  // namespace

absl::StatusOr<std::vector<DeviceInfo>> ListDevices() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return StatusOf(error, "cudaGetDeviceCount");
  }
  int current = 0;
  if (const cudaError_t error = cudaGetDevice(&current); error != cudaSuccess) return StatusOf(error, "cudaGetDevice");
  std::vector<DeviceInfo> devices;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess) {
      return StatusOf(error, "cudaGetDeviceProperties");
    }
    devices.push_back({.index = index,
                       .name = properties.name,
                       .compute_major = properties.major,
                       .compute_minor = properties.minor,
                       .num_multiprocessors = properties.multiProcessorCount,
                       .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
                       .is_supported = HasImageFor(index)});
  }
  if (const cudaError_t error = cudaSetDevice(current); error != cudaSuccess) return StatusOf(error, "cudaSetDevice");
  return devices;
}

}  // namespace tandem::kernels::cuda

#include <cuda_runtime.h>

#include "kernels/cuda/device_info.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/cuda/launch.h"

namespace tandem::kernels::cuda {

absl::Status UseFirstSupportedDevice() {
  const absl::StatusOr<std::vector<DeviceInfo>> devices = ListDevices();
  if (!devices.ok()) return devices.status();
  for (const DeviceInfo& device : *devices) {
    if (device.is_supported) return CudaStatus(cudaSetDevice(device.index), "cudaSetDevice");
  }
  return absl::UnavailableError(absl::StrCat("none of ", devices->size(), " devices runs this build's machine code"));
}

absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(int64_t num_bytes) {
  DeviceMemory memory;
  void* data = nullptr;
  const absl::Status status = CudaStatus(cudaMalloc(&data, static_cast<size_t>(num_bytes)),
                                         absl::StrCat("cudaMalloc of ", num_bytes, " bytes"));
  if (!status.ok()) {
    cudaGetLastError();  // told already: the next op's launches have nothing to do with it
    return status;
  }
  memory.data_ = static_cast<std::byte*>(data);
  memory.num_bytes_ = num_bytes;
  return memory;
}

// What fails here failed before, where somebody waited for it.
DeviceMemory::~DeviceMemory() { cudaFree(data_); }

absl::StatusOr<OwnedStream> OwnedStream::Create() {
  OwnedStream stream;
  const absl::Status status =
      CudaStatus(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  if (!status.ok()) return status;
  return stream;
}

OwnedStream::~OwnedStream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::Status CopyToDevice(Stream stream, void* device, const void* host, int64_t num_bytes) {
  const absl::Status status =
      CudaStatus(cudaMemcpyAsync(device, host, static_cast<size_t>(num_bytes), cudaMemcpyHostToDevice, stream),
                 "cudaMemcpyAsync to the device");
  return status.ok() ? Synchronize(stream) : status;
}

absl::Status CopyToHost(Stream stream, void* host, const void* device, int64_t num_bytes) {
  const absl::Status status =
      CudaStatus(cudaMemcpyAsync(host, device, static_cast<size_t>(num_bytes), cudaMemcpyDeviceToHost, stream),
                 "cudaMemcpyAsync to the host");
  return status.ok() ? Synchronize(stream) : status;
}

absl::Status Synchronize(Stream stream) { return CudaStatus(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

}  // namespace tandem::kernels::cuda

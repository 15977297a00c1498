// Device memory and a stream, owned; copies that wait. For what sets the device up, tests and benchmarks: ops allocate
// nothing and wait for nothing.
//
// The interface is the same in builds without CUDA, where everything is UNIMPLEMENTED. Errors carry CUDA's own words;
// one that a kernel caused shows up in whatever waits next. Tested by device_memory_device_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct CUstream_st;

namespace tandem::kernels::cuda {

using Stream = CUstream_st*;  // cudaStream_t

// Makes the first device that this build has machine code for the current one. UNAVAILABLE where there is none.
absl::Status UseFirstSupportedDevice();

// Aligned to 256 bytes. Empty after a move.
class DeviceMemory final {
 public:
  static absl::StatusOr<DeviceMemory> Allocate(int64_t num_bytes);
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), num_bytes_(std::exchange(other.num_bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(num_bytes_, other.num_bytes_);
    return *this;
  }
  ~DeviceMemory();

  std::byte* data() const { return data_; }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t num_bytes_ = 0;
};

class OwnedStream final {
 public:
  // Does not wait for the default stream, nor that for it.
  static absl::StatusOr<OwnedStream> Create();
  OwnedStream(OwnedStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  OwnedStream& operator=(OwnedStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~OwnedStream();

  Stream get() const { return stream_; }

 private:
  OwnedStream() = default;

  Stream stream_ = nullptr;
};

// In the stream's order; return when the copy is done.
absl::Status CopyToDevice(Stream stream, void* device, const void* host, int64_t num_bytes);
absl::Status CopyToHost(Stream stream, void* host, const void* device, int64_t num_bytes);
// Returns when everything enqueued so far is done.
absl::Status Synchronize(Stream stream);

}  // namespace tandem::kernels::cuda

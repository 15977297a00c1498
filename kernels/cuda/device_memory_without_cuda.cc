// Builds without CUDA have the same functions, and each says what is missing.
#include "kernels/cuda/device_memory.h"

namespace tandem::kernels::cuda {
namespace {

absl::Status NoCuda() { return absl::UnimplementedError("this build has no CUDA"); }

}  // namespace

absl::Status UseFirstSupportedDevice() { return NoCuda(); }
absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(int64_t) { return NoCuda(); }
DeviceMemory::~DeviceMemory() = default;
absl::StatusOr<OwnedStream> OwnedStream::Create() { return NoCuda(); }
OwnedStream::~OwnedStream() = default;
absl::Status CopyToDevice(Stream, void*, const void*, int64_t) { return NoCuda(); }
absl::Status CopyToHost(Stream, void*, const void*, int64_t) { return NoCuda(); }
absl::Status Synchronize(Stream) { return NoCuda(); }

}  // namespace tandem::kernels::cuda

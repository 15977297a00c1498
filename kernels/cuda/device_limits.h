// Kernels that do one thing as fast as the device can: what benchmarks call the limits.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/device_memory.h"

namespace tandem::kernels::cuda {

// Reads num_bytes in 16-byte loads. num_bytes: a multiple of 16 KB.
absl::Status LimitRead(Stream stream, const void* data, int64_t num_bytes);
// One 16-byte vector a thread, which beats a grid that walks over the data. num_bytes: a multiple of 2 KB.
absl::Status LimitCopy(Stream stream, const void* from, void* to, int64_t num_bytes);
absl::Status LimitEmpty(Stream stream);
// wgmma 64 x 256 on the same random tiles in shared memory again and again, two warpgroups on every multiprocessor:
// above what any product can reach that must also load its operands.
absl::Status LimitTensor(Stream stream, bool is_fp8);
double LimitTensorFlops(bool is_fp8);

}  // namespace tandem::kernels::cuda

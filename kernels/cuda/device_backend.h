// One CUDA device as a backend: its memory, the ops of ops.h on a stream of its own, and a second stream for downloads
// beside them.
//
// A fault on the device (an illegal address, a failed launch) spoils everything that CUDA does in this process from
// then on: waiting for it ends the process with CUDA's own words, for whoever watches it to start anew. The interface
// is the same in builds without CUDA. Tested by device_backend_device_test.cc.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tandem::kernels::cuda {

// ListDevices' errors; NOT_FOUND where there are fewer devices, FAILED_PRECONDITION where this build has no code for
// it.
absl::StatusOr<std::unique_ptr<Backend>> OpenCudaBackend(int device_index);

}  // namespace tandem::kernels::cuda

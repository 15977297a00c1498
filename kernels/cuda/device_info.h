// The CUDA devices of this machine, as a worker sees them at start.
//
// The interface is the same in builds without CUDA, where the answer is UNIMPLEMENTED; no caller needs an #ifdef.
// Tested by device_info_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::kernels::cuda {

struct DeviceInfo {
  int index = 0;
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int num_multiprocessors = 0;
  int64_t memory_bytes = 0;
  // Whether this build holds machine code that the device runs (it is compiled for sm_90a only).
  bool is_supported = false;
};

// In order of their index. UNIMPLEMENTED where the build has no CUDA; UNAVAILABLE, with CUDA's own words, where the
// machine has no driver or no device.
absl::StatusOr<std::vector<DeviceInfo>> ListDevices();

}  // namespace tandem::kernels::cuda

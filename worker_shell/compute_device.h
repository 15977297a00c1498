// process.device: where a worker's model runs. Tested by compute_device_test.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tandem::worker_shell {

struct ComputeDeviceOptions {
  std::string device = "cpu";              // "cpu" or "cuda:N"
  int num_threads = 0;                     // of cpu; 0: every processor that this process may use
  std::string instruction_level = "auto";  // of cpu, for the whole process
};

// INVALID_ARGUMENT where no device can have this name.
// FAILED_PRECONDITION where this machine lacks the instruction level or the device, where the device is of a kind that
// this build has no code for, or where the build has no CUDA at all; the message says which.
absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenComputeDevice(const ComputeDeviceOptions& options);

// How many of a worker's threads are a rank's: equal parts, at least one.
int ThreadsOfRank(int num_threads, int rank, int num_ranks);

// One for each of a worker's ranks, at least one: of cpu with a part of the threads each, at least one; of cuda:N the
// devices from N on.
absl::StatusOr<std::vector<std::unique_ptr<kernels::Backend>>> OpenRankDevices(const ComputeDeviceOptions& options,
                                                                               int num_ranks);

}  // namespace tandem::worker_shell

#include "worker_shell/compute_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kernels/cpu/levels.h"
#include "kernels/cpu_backend.h"
#include "kernels/cuda/device_backend.h"
#include "kernels/thread_pool.h"
#include "worker_shell/device_name.h"

namespace tandem::worker_shell {
absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenComputeDevice(const ComputeDeviceOptions& options) {
  ASSIGN_OR_RETURN(const DeviceName name, ParseDeviceName(options.device));
  // On any device: tables and weights are prepared on the host.
  RETURN_IF_ERROR(kernels::cpu::UseLevel(options.instruction_level));
  if (name.cuda_index.has_value()) {
    auto backend = kernels::cuda::OpenCudaBackend(*name.cuda_index);
    if (!backend.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("process.device ", options.device, ": ", backend.status().message()));
    }
    LOG_INFO("compute device", {"device", options.device});
    return backend;
  }
  const int num_threads = options.num_threads > 0 ? options.num_threads : kernels::NumUsableProcessors();
  LOG_INFO("compute device", {"device", options.device}, {"num_threads", num_threads},
           {"instruction_level", kernels::cpu::LevelName(kernels::cpu::ActiveLevel())});
  return std::make_unique<kernels::CpuBackend>(num_threads);
}

int ThreadsOfRank(int num_threads, int rank, int num_ranks) {
  return std::max(1, num_threads / num_ranks + (rank < num_threads % num_ranks ? 1 : 0));
}

absl::StatusOr<std::vector<std::unique_ptr<kernels::Backend>>> OpenRankDevices(const ComputeDeviceOptions& options,
                                                                               int num_ranks) {
  ASSIGN_OR_RETURN(const DeviceName name, ParseDeviceName(options.device));
  const int num_threads = options.num_threads > 0 ? options.num_threads : kernels::NumUsableProcessors();
  std::vector<std::unique_ptr<kernels::Backend>> devices;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ComputeDeviceOptions of_rank = options;
    if (name.cuda_index.has_value()) {
      of_rank.device = absl::StrCat("cuda:", *name.cuda_index + rank);
    } else {
      of_rank.num_threads = ThreadsOfRank(num_threads, rank, num_ranks);
    }
    ASSIGN_OR_RETURN(std::unique_ptr<kernels::Backend> device, OpenComputeDevice(of_rank));
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace tandem::worker_shell

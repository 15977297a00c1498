#include "worker_shell/compute_device.h"

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

}  // namespace tandem::worker_shell

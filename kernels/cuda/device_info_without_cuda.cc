#include "kernels/cuda/device_info.h"

namespace tandem::kernels::cuda {

absl::StatusOr<std::vector<DeviceInfo>> ListDevices() {
  return absl::UnimplementedError("this build has no CUDA: no nvcc was found below CUDA_HOME when it was made");
}

}  // namespace tandem::kernels::cuda

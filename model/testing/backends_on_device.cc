#include "kernels/cuda/device_backend.h"
#include "model/testing/backends_under_test.h"

namespace tandem::model {

std::vector<std::string> BackendsUnderTest() { return {"OnADevice"}; }

absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenBackendUnderTest(const std::string& name) {
  return kernels::cuda::OpenCudaBackend(0);
}

}  // namespace tandem::model

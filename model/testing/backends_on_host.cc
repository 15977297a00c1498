#include "kernels/cpu_backend.h"
#include "kernels/detached_backend.h"
#include "model/testing/backends_under_test.h"

namespace tandem::model {

std::vector<std::string> BackendsUnderTest() { return {"OfTheHost", "Apart"}; }

absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenBackendUnderTest(const std::string& name) {
  if (name == "Apart") return std::make_unique<kernels::DetachedBackend>();
  return std::make_unique<kernels::CpuBackend>(1);
}

}  // namespace tandem::model

// For tests that run the same on several backends: which ones, chosen when the test is linked (backends_on_host.cc: the
// host, and the host with memory apart; backends_on_device.cc: a CUDA device).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tandem::model {

// Names of test parameters.
std::vector<std::string> BackendsUnderTest();
// UNAVAILABLE or NOT_FOUND where the machine has none: the test skips.
absl::StatusOr<std::unique_ptr<kernels::Backend>> OpenBackendUnderTest(const std::string& name);

}  // namespace tandem::model

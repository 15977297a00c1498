// The values of process.device: "cpu", or "cuda:N". Tested by compute_device_test.cc.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::worker_shell {

struct DeviceName {
  std::optional<int> cuda_index;  // none: cpu
};

// INVALID_ARGUMENT where no device can have this name. Looks at no device.
absl::StatusOr<DeviceName> ParseDeviceName(absl::string_view device);

}  // namespace tandem::worker_shell

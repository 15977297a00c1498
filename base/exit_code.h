// What a service's process ends with: 0 all went well, 2 a setting is wrong (starting again cannot help), 1 the rest.
#pragma once

#include "absl/status/status.h"

namespace tandem::base {

inline int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace tandem::base

// What a service's process ends with: 0 all went well, a whole drain included; 2 a setting is wrong (starting again
// cannot help); 1 the rest, also a drain that gave requests up because its time or a second signal ended it.
#pragma once

#include "absl/status/status.h"

namespace tandem::base {

inline int ExitCode(const absl::Status& status) {
  if (status.ok()) return 0;
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace tandem::base

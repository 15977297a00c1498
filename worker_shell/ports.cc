#include "worker_shell/ports.h"

#include "absl/strings/str_cat.h"
#include "base/host_port.h"

namespace tandem::worker_shell {

absl::Status CheckPortsDiffer(const std::vector<PortField>& fields) {
  for (size_t i = 0; i < fields.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const PortField &a = fields[j], &b = fields[i];
      if (a.port == 0 || a.port != b.port) continue;
      if (a.host != b.host && !base::IsWildcard(a.host) && !base::IsWildcard(b.host)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(a.field, " and ", b.field, " are both ", a.port, ": each needs a port of its own"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::worker_shell

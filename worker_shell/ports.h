// The listening places of one process must differ: a clash within it reads better than "address in use".
// Tested by ports_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::worker_shell {

struct PortField {
  std::string field;  // as in the configuration
  std::string host;
  int port = 0;  // 0: any free one, clashes with none
};

// INVALID_ARGUMENT naming two fields that want one port of one address; a wildcard overlaps with every address.
absl::Status CheckPortsDiffer(const std::vector<PortField>& fields);

}  // namespace tandem::worker_shell

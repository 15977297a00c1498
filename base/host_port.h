// host:port as operators write it: names, IPv4, [IPv6], with the place of a fault in the message.
// Tested by host_port_test.cc.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::base {

struct HostPort {
  std::string host;  // without brackets; localhost and 127.0.0.1 are one: stored as 127.0.0.1
  int port = 0;

  std::string ToString() const;  // IPv6 literals in brackets
  bool operator==(const HostPort&) const = default;
};

// INVALID_ARGUMENT with the position of the fault: empty host, missing or bad port, a bare IPv6 literal.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);
// Wildcards (0.0.0.0, ::) may be listened on but not advertised.
bool IsWildcard(absl::string_view host);
// Hosts that no other machine can reach.
bool IsLoopback(absl::string_view host);

}  // namespace tandem::base

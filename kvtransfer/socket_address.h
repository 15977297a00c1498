// Where a lane's listener is and how it is found. Tested by lane_conformance_test.cc and ucx_source_test.cc.
#pragma once

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"
#include "base/host_port.h"

namespace tandem::kvtransfer {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t num_bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// The first address of the host. UNAVAILABLE for a name that does not resolve. Blocks as long as the resolver does.
absl::StatusOr<SocketAddress> Resolve(const base::HostPort& where);

// An address of this machine by which others reach it: the first of a device in `net_devices` ("all" or "eth0,eth1")
// that is up, IPv4 before IPv6, loopback last. UNAVAILABLE where there is none.
absl::StatusOr<std::string> RoutableHost(const std::string& net_devices);

int PortOf(const sockaddr_storage& address);

}  // namespace tandem::kvtransfer

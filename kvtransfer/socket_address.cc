#include "kvtransfer/socket_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tandem::kvtransfer {

absl::StatusOr<SocketAddress> Resolve(const base::HostPort& where) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(absl::StrCat(where.host, ": ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  SocketAddress address;
  address.num_bytes = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  return address;
}

absl::StatusOr<std::string> RoutableHost(const std::string& net_devices) {
  const std::vector<std::string> devices = absl::StrSplit(net_devices, ',');
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot list network devices: ", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(found, freeifaddrs);
  std::string best;
  int best_rank = std::numeric_limits<int>::max();
  for (const ifaddrs* device = found; device != nullptr; device = device->ifa_next) {
    if (device->ifa_addr == nullptr || (device->ifa_flags & IFF_UP) == 0) continue;
    if (net_devices != "all" && std::find(devices.begin(), devices.end(), device->ifa_name) == devices.end()) continue;
    const int family = device->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(device->ifa_addr)->sin6_addr)) {
      continue;  // means nothing without the device's name
    }
    const int rank = ((device->ifa_flags & IFF_LOOPBACK) != 0 ? 2 : 0) + (family == AF_INET6 ? 1 : 0);
    char host[NI_MAXHOST];
    const socklen_t num_bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (rank < best_rank &&
        getnameinfo(device->ifa_addr, num_bytes, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) == 0) {
      best = host;
      best_rank = rank;
    }
  }
  if (best.empty()) return absl::UnavailableError(absl::StrCat("no address on network devices ", net_devices));
  return best;
}

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace tandem::kvtransfer

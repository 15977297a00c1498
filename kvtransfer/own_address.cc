#include "kvtransfer/own_address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"

namespace tandem::kvtransfer {
namespace {

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24) == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

bool IsSame(const sockaddr& a, const sockaddr& b) {
  if (a.sa_family != b.sa_family) return false;
  if (a.sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
  }
  return a.sa_family == AF_INET6 && IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr,
                                                       &reinterpret_cast<const sockaddr_in6&>(b).sin6_addr);
}

// A loopback address that no device has stands for the loopback device: all of 127/8 does.
std::string DeviceOf(const sockaddr& address) {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return "";
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(found, freeifaddrs);
  for (const ifaddrs* device = found; device != nullptr; device = device->ifa_next) {
    if (device->ifa_addr == nullptr) continue;
    const bool is_loopback = (device->ifa_flags & IFF_LOOPBACK) != 0 && IsLoopback(address);
    if (!is_loopback && !IsSame(*device->ifa_addr, address)) continue;
    const std::string label = device->ifa_name;
    return label.substr(0, label.find(':'));  // "eth0:1" is a second address of eth0
  }
  return "";
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

// error, where it is given: of getaddrinfo(3), 0 where all went well.
Addresses Lookup(const std::string& host, int flags, int* error = nullptr) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int result = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (result != 0) found = nullptr;
  if (error != nullptr) *error = result;
  return Addresses(
      found, +[](addrinfo* list) {
        if (list != nullptr) freeaddrinfo(list);
      });
}

}  // namespace

bool IsOwnAddress(const std::string& host) {
  if (base::IsWildcard(host)) return false;
  if (host == "localhost") return true;
  if (const Addresses literal = Lookup(host, AI_NUMERICHOST); literal != nullptr) {
    return !DeviceOf(*literal->ai_addr).empty();
  }
  // The first is the one that will be bound.
  const Addresses named = Lookup(host, 0);
  return named != nullptr && !IsLoopback(*named->ai_addr) && !DeviceOf(*named->ai_addr).empty();
}

absl::Status CheckResolves(const std::string& host) {
  int error = 0;
  const Addresses found = Lookup(host, 0, &error);
  if (found != nullptr) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("\"", host, "\" cannot be resolved: ", gai_strerror(error)));
}

std::string DeviceOf(const std::string& host) {
  const Addresses found = Lookup(host, 0);
  return found != nullptr ? DeviceOf(*found->ai_addr) : "";
}

std::string LaneListenHost(const std::string& listen_host, const std::string& advertise_host,
                           const std::string& net_devices) {
  if (net_devices != "all") return "";
  if (!base::IsWildcard(listen_host)) return listen_host;
  return IsOwnAddress(advertise_host) ? advertise_host : "";
}

}  // namespace tandem::kvtransfer

#include "router/discovery/dns_workers.h"

#include <netdb.h>
#include <sys/socket.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/status_macros.h"

namespace tandem::router {

absl::StatusOr<std::vector<std::string>> ResolveBySystem(const std::string& host) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &list); error != 0) {
    const std::string words = absl::StrCat("\"", host, "\" cannot be resolved: ", gai_strerror(error));
    const bool is_unknown = error == EAI_NONAME || error == EAI_NODATA;
    return is_unknown ? absl::NotFoundError(words) : absl::UnavailableError(words);
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(
      list, +[](addrinfo* l) { freeaddrinfo(l); });
  std::vector<std::string> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) {
      addresses.emplace_back(text);
    }
  }
  return addresses;
}

absl::StatusOr<WorkerLists> FindDnsWorkers(const std::string& name, WorkerRole role, const ResolveHost& resolve) {
  ASSIGN_OR_RETURN(const base::HostPort parsed, base::ParseHostPort(name));
  ASSIGN_OR_RETURN(const std::vector<std::string> hosts, resolve(parsed.host));
  if (hosts.empty()) return absl::NotFoundError(absl::StrCat("\"", parsed.host, "\" has no address"));
  WorkerLists lists;
  std::set<std::string>& addresses = role == WorkerRole::kPrefill ? lists.prefill : lists.decode;
  for (const std::string& host : hosts) addresses.insert(base::HostPort{host, parsed.port}.ToString());
  return lists;
}

}  // namespace tandem::router

// Workers by a name in DNS: every address that the name has is one worker. In Kubernetes the name of a headless
// Service, which has the address of every ready pod.
//
// A name that has no address is an error, not an empty list: a selector that matches nothing and a name server that
// lost its data look alike, and whether a known worker lives is seen by its link.
// Tested by dns_workers_test.cc.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/discovery/worker_lists.h"
#include "router/worker_channel.h"

namespace tandem::router {

// Numeric addresses of a host name; NOT_FOUND where it has none, UNAVAILABLE where nobody could say.
using ResolveHost = std::function<absl::StatusOr<std::vector<std::string>>(const std::string& host)>;

// By getaddrinfo(3); may block for the resolver's time-outs.
absl::StatusOr<std::vector<std::string>> ResolveBySystem(const std::string& host);

// name: host:port.
absl::StatusOr<WorkerLists> FindDnsWorkers(const std::string& name, WorkerRole role, const ResolveHost& resolve);

}  // namespace tandem::router

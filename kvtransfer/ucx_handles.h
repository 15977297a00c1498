// Owners of UCX objects, with absl::Status in place of UCX's codes. Included by ucx_*.cc alone: nobody else compiles
// UCX's headers.
//
// Everything made from one context is used by one thread, the one that made it. UCX's configuration is set in code and
// never through the environment; what is set there by others is read by UCX first and then overwritten here.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/waker.h"

namespace tandem::kvtransfer {

// "what: UCX's own words". Gone peers are UNAVAILABLE, exhausted memory RESOURCE_EXHAUSTED, the rest INTERNAL.
absl::Status FromUcx(ucs_status_t status, std::string_view what);

struct UcpContextDeleter {
  void operator()(ucp_context_h context) const { ucp_cleanup(context); }
};
struct UcpWorkerDeleter {
  void operator()(ucp_worker_h worker) const { ucp_worker_destroy(worker); }
};
struct UcpRkeyDeleter {
  void operator()(ucp_rkey_h rkey) const { ucp_rkey_destroy(rkey); }
};
using UcpContext = std::unique_ptr<ucp_context, UcpContextDeleter>;
using UcpWorker = std::unique_ptr<ucp_worker, UcpWorkerDeleter>;
using UcpRkey = std::unique_ptr<ucp_rkey, UcpRkeyDeleter>;

enum class UcxTransport {
  kSharedMemory,  // posix segments, memory reads
  kTcp,           // active messages, always eager
};

// net_devices: UCX's list of network devices for kTcp ("all", "eth0,ib0"); it has no meaning for kSharedMemory.
absl::StatusOr<UcpContext> MakeUcpContext(UcxTransport transport, const std::string& net_devices);
absl::StatusOr<UcpWorker> MakeUcpWorker(ucp_context_h context);
// A worker's address as it travels, with UCX's version before it: UCX 1.13 ends the process that is given an address of
// another version or none at all.
absl::StatusOr<std::string> WorkerAddress(ucp_worker_h worker);
// The address alone. UNAVAILABLE, with both versions, where it is not of this UCX.
absl::StatusOr<std::string> AddressOfSameVersion(const std::string& worker_address);

// Progresses until the request is done, and frees it. DEADLINE_EXCEEDED after `limit`: it is then cancelled and freed,
// and whatever it refers to must stay until the worker is destroyed.
absl::Status AwaitRequest(ucp_worker_h worker, ucs_status_ptr_t request, absl::Duration limit, std::string_view what);

// Sleeps until the waker wakes (and clears it), until one of the workers (either may be null) has something to
// progress, or until `limit` has passed; not at all where a worker has something already.
absl::Status WaitForUcx(Waker& waker, ucp_worker_h first, ucp_worker_h second, absl::Duration limit);

}  // namespace tandem::kvtransfer

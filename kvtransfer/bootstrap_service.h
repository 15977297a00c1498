// Prefill's end of the links to all its decode workers: the Bootstrap service (Hello, Control) and its gRPC server.
//
// A decode worker greets with Hello; the Control stream that it then opens is its session. A new incarnation of the
// same instance, or a second stream of the same incarnation, ends the older session before the new one begins. One
// thread sends heartbeats on all sessions and ends those that have been silent too long.
//
// Events of one decode worker come one at a time and in order: TargetUp, TargetMessage..., TargetDown. They come on
// gRPC's or the service's own threads; the callback must not block and must not call into the service, except Send.
// Tested by peer_link_test.cc, together with its counterpart.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/host_port.h"
#include "base/peer_security.h"
#include "kvtransfer/link_liveness.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::kvtransfer {

struct BootstrapOptions {
  base::PeerSecurity* security = nullptr;                  // outlives the service
  base::HostPort listen{.host = "0.0.0.0", .port = 8998};  // port 0: any free one
  // Identity (role "prefill"), fingerprint, host id, pages; ranks where all decode workers get the same.
  proto::HelloReply hello;
  // Where set, gives the lane ends for one decode worker, after the handshake's checks have passed. Its error refuses
  // the peer. Called on a gRPC thread; must not block for long.
  std::function<absl::StatusOr<std::vector<proto::SourceRank>>(const proto::HelloRequest&)> offer_lanes;
  LivenessOptions liveness;
  size_t send_queue_bytes_max = size_t{64} << 20;
};

struct TargetUp {
  proto::HelloRequest hello;  // hello.identity().incarnation() names the session's decode worker
};
struct TargetDown {
  uint64_t target_incarnation = 0;
  absl::Status status;
};
struct TargetMessage {
  uint64_t target_incarnation = 0;
  proto::TransferMessage message;  // never a heartbeat
};
using BootstrapEvent = std::variant<TargetUp, TargetDown, TargetMessage>;

class BootstrapService final {
 public:
  // Listens and serves. UNAVAILABLE where the address cannot be listened on.
  // `vitals` is called on the service's heartbeat thread. `clock` outlives the service.
  static absl::StatusOr<std::unique_ptr<BootstrapService>> Start(BootstrapOptions options, const base::Clock& clock,
                                                                 std::function<EngineVitals()> vitals,
                                                                 std::function<void(BootstrapEvent)> on_event);
  // Ends every session and stops listening; no event comes after it.
  ~BootstrapService();
  BootstrapService(const BootstrapService&) = delete;
  BootstrapService& operator=(const BootstrapService&) = delete;

  int port() const;
  // Queues the message on the session of that decode worker; dropped where there is none (TargetDown is under way).
  // Never blocks and never refuses: a decode worker that leaves more than send_queue_bytes_max unread is taken down.
  void Send(uint64_t target_incarnation, const proto::TransferMessage& message);
  size_t num_sessions() const;

 private:
  class Core;
  explicit BootstrapService(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace tandem::kvtransfer

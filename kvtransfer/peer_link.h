// Decode's link to one prefill worker: greets it, keeps the control stream open, notices silence, comes back.
//
// One gRPC connection and one thread per prefill address, however many requests there are. The thread greets with
// Hello (one at a time, retried with doubling waits), opens Control, sends a heartbeat every 250 ms that carries the
// engine's step counter, and takes the link down on a closed stream, on 750 ms of silence, when P's engine makes no
// step although work waits, or when P does not read what it is sent. The rules are in LinkLiveness and Backoff, which
// know no gRPC; this file wires them up.
//
// Events come on gRPC's or the link's own threads, one at a time and in order: PeerUp, PeerMessage..., PeerDown, again
// from the start. The callback must not block and must not call back into the link, except Send and Reset; it normally
// pushes to the engine's mailbox. Tested by peer_link_test.cc (real gRPC on loopback) and link_liveness_test.cc (fake
// clock).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/peer_security.h"
#include "kvtransfer/link_liveness.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::kvtransfer {

struct PeerLinkOptions {
  base::PeerSecurity* security = nullptr;  // outlives the link
  std::string address;                     // P's bootstrap address, host:port
  proto::HelloRequest hello;               // identity (role "decode"), fingerprint, lanes, host id, pages
  LivenessOptions liveness;
  absl::Duration hello_timeout = absl::Seconds(1);
  absl::Duration retry_min = absl::Milliseconds(100);  // wait after the first failure; doubles
  absl::Duration retry_max = absl::Seconds(2);
  absl::Duration refused_retry = absl::Seconds(1);  // after a refusal: the peer may be replaced by one that fits
  size_t send_queue_bytes_max = size_t{64} << 20;
};

// Both sides fit and the control stream is open. `session` is new each time.
struct PeerUp {
  uint64_t session = 0;
  proto::HelloReply reply;
};
// The link is not usable. Sent when it goes down, and while it is down whenever the reason changes: UNAVAILABLE (not
// reachable, silent, closed, engine hung, not reading), FAILED_PRECONDITION (refused, with the list of differences),
// ABORTED (P was restarted: its new incarnation is greeted next), INVALID_ARGUMENT (the address is a wildcard).
struct PeerDown {
  uint64_t session = 0;  // 0 where it was not up
  absl::Status status;
};
struct PeerMessage {
  uint64_t session = 0;
  proto::TransferMessage message;  // never a heartbeat
};
using PeerEvent = std::variant<PeerUp, PeerDown, PeerMessage>;

class PeerLink final {
 public:
  // Starts at once. `vitals` is called on the link's thread. `clock` outlives the link.
  PeerLink(PeerLinkOptions options, const base::Clock& clock, std::function<EngineVitals()> vitals,
           std::function<void(PeerEvent)> on_event);
  // Closes the stream and waits for gRPC to let go; no event comes after it, and none for the closing itself.
  ~PeerLink();
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  // Queues the message on the stream of that session; dropped where the session is over (PeerDown is then under way).
  // Never blocks and never refuses: the queue is bounded by what epochs may have outstanding, and a peer that leaves
  // more than send_queue_bytes_max unread is taken down.
  void Send(uint64_t session, const proto::TransferMessage& message);

  // Takes the session down (PeerDown follows with this status) and greets anew; nothing where it is over already.
  void Reset(uint64_t session, const absl::Status& status);

  const std::string& address() const;

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace tandem::kvtransfer

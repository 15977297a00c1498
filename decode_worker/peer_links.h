// The links to all prefill workers that routers name: one PeerLink each, and a thread that opens, wires and closes.
//
// Opening lanes, measuring them and closing links take time; the engine's thread only leaves orders here. A peer is
// told up when its lanes are wired, and down exactly once after each up; a session that ended while it was being wired
// is never told up. Where no lane works, the peer is down with the reasons, and is greeted and wired anew after a
// while: a machine that was too busy for the probe need not stay refused. Tested by //tests/workers (a real bootstrap
// service that refuses, dies and comes back).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/peer_security.h"
#include "decode_worker/lane_wiring.h"
#include "kvtransfer/peer_link.h"
#include "kvtransfer/transfer_target.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::decode {

struct PeerLinksOptions {
  base::PeerSecurity* security = nullptr;  // outlives the links
  proto::HelloRequest hello;
  kvtransfer::LivenessOptions liveness;
  LaneWiringOptions wiring;
};

// Called on threads of links or of this class, must not block, and must not call back.
struct PeerLinksEvents {
  std::function<void(const std::string& peer, std::shared_ptr<WiredPeer> wired)> up;
  std::function<void(const std::string& peer, const absl::Status& status)> down;  // also: cannot be reached, and why
  std::function<void(const std::string& peer, proto::TransferMessage message)> message;
  std::function<kvtransfer::EngineVitals()> vitals;
};

class PeerLinks final {
 public:
  PeerLinks(PeerLinksOptions options, const base::Clock& clock, PeerLinksEvents events);
  // Closes every link; no event comes after it.
  ~PeerLinks();
  PeerLinks(const PeerLinks&) = delete;
  PeerLinks& operator=(const PeerLinks&) = delete;

  // Opens what is new and closes what is gone. Never blocks.
  void LinkWith(const std::vector<std::string>& addresses) ABSL_LOCKS_EXCLUDED(mutex_);
  void Send(const kvtransfer::SendMessage& message) ABSL_LOCKS_EXCLUDED(links_mutex_);
  void Reset(const kvtransfer::ResetPeer& reset) ABSL_LOCKS_EXCLUDED(links_mutex_);

 private:
  using Order = std::function<void()>;

  void Run();
  void Open(const std::string& address);
  void Close(const std::string& address);
  void Wire(const std::string& address, const kvtransfer::PeerUp& up);
  void OnEvent(const std::string& address, kvtransfer::PeerEvent event) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasOrders() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_stopping_ || !orders_.empty(); }

  const PeerLinksOptions options_;
  const base::Clock& clock_;
  const PeerLinksEvents events_;

  // Events and orders. Held while `up` and `down` are told, so that they come in the order in which they happened.
  absl::Mutex mutex_;
  std::deque<Order> orders_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> sessions_ ABSL_GUARDED_BY(mutex_);  // open ones, by address
  // Of peers that are not usable: the kind of failure logged last. They are tried every few seconds.
  std::map<std::string, absl::StatusCode> failures_logged_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // Never taken by a link's callback, so that Send may hold it.
  absl::Mutex links_mutex_;
  std::map<std::string, std::unique_ptr<kvtransfer::PeerLink>> links_ ABSL_GUARDED_BY(links_mutex_);

  std::thread thread_;
};

}  // namespace tandem::decode

// The rules by which a link is suspected, and how long to wait before the next try: no thread, no network.
// Tested by link_liveness_test.cc.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::kvtransfer {

// What a heartbeat says about the engine behind it.
struct EngineVitals {
  uint64_t steps = 0;
  absl::Duration oldest_work_age;  // zero where nothing waits
};

struct LivenessOptions {
  absl::Duration heartbeat_interval = absl::Milliseconds(250);
  absl::Duration silence_max = absl::Milliseconds(750);
  // Time between two looks beyond this is a stall of this side, and does not count as the peer's silence: a worker that
  // was starved or stopped must not blame all of its peers when it wakes. Where it was gone for too long, they have
  // closed its streams, which it hears at once.
  absl::Duration look_max = absl::Milliseconds(200);
  // The peer's engine made no step for this long although its oldest work is older than this.
  absl::Duration engine_stall_max = absl::Seconds(30);
};

// Of one session of one link. Every message is a sign of life, heartbeats also tell of the engine.
class LinkLiveness final {
 public:
  LinkLiveness(const LivenessOptions& options, absl::Duration now);

  void Heard(absl::Duration now);
  void HeardHeartbeat(absl::Duration now, const proto::PeerHeartbeat& heartbeat);
  // One look: OK, or UNAVAILABLE with how long the peer has been silent or its engine stuck.
  absl::Status Check(absl::Duration now);

  bool IsHeartbeatDue(absl::Duration now) const { return now >= next_heartbeat_; }
  // The heartbeat to send now; the next is due an interval later.
  proto::PeerHeartbeat NextHeartbeat(absl::Duration now, const EngineVitals& vitals);
  // When Check or IsHeartbeatDue may next give another answer, as a point of the clock.
  absl::Duration NextDue() const;

 private:
  LivenessOptions options_;
  absl::Duration last_look_;
  absl::Duration silent_for_;  // since the last sign of life, while somebody looked
  absl::Duration next_heartbeat_;
  absl::Duration last_step_;  // when the peer's step counter last grew, or nothing waited
  uint64_t peer_steps_ = 0;
  absl::Duration peer_work_age_;
  uint64_t sequence_ = 0;
};

// Waits min, 2 min, 4 min, ... max.
class Backoff final {
 public:
  Backoff(absl::Duration min, absl::Duration max) : min_(min), max_(max), next_(min) {}
  absl::Duration Next();
  void Reset() { next_ = min_; }

 private:
  absl::Duration min_;
  absl::Duration max_;
  absl::Duration next_;
};

}  // namespace tandem::kvtransfer

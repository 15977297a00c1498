// Keeps one worker connected: greets it, checks who answers, sends heartbeats, notices silence, connects again.
//
// Pure of sockets and clocks: a WorkerChannel moves the messages and Tick() brings the time, so that tests and
// //tests/sim drive it. A worker is *up* from its hello until its channel closes or it is silent for silence_max.
// A lost stream is not a dead worker: for kReattachWaitMax after the loss the link tries to reach the same incarnation
// again, and only then, or when another one answers, is the worker *lost* with all that ran there. Suspicion lets the
// router stop using a worker; it never decides what becomes of the worker's own state. Where this process itself was
// stalled (ticks far apart), that time is not held against the worker. Tested by worker_link_test.cc (fake channel,
// fake time) and worker_loss_integration_test.cc (gRPC).
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/own_stall.h"
#include "router/worker_channel.h"

namespace tandem::router {

struct LinkTimes {
  absl::Duration heartbeat_interval = absl::Milliseconds(250);
  absl::Duration silence_max = absl::Milliseconds(750);
};

// Noticing silence and then waiting takes less than the workers' process.router_grace, after which they cancel.
inline constexpr absl::Duration kReattachWaitMax = absl::Seconds(1);
inline constexpr absl::Duration kHelloWaitMax = absl::Seconds(2);
inline constexpr absl::Duration kBackoffMin = absl::Milliseconds(100);
inline constexpr absl::Duration kBackoffMax = absl::Seconds(2);

class WorkerLink;

class WorkerLinkListener {
 public:
  virtual ~WorkerLinkListener() = default;
  // Before a worker that has greeted counts as up: an error refuses it, as one that does not fit.
  virtual absl::Status CheckWorker(const WorkerLink& link, const proto::WorkerHello& hello) = 0;
  // is_back: the same incarnation as before the loss, in time; what runs there may live on.
  virtual void OnLinkUp(WorkerLink& link, const proto::WorkerHello& hello, bool is_back) = 0;
  // The stream is lost; the worker may come back. Also for an attempt to connect that failed: the cause is what
  // /statusz shows.
  virtual void OnLinkDown(WorkerLink& link, bool was_up, const absl::Status& cause) = 0;
  // After OnLinkDown with was_up: it has not come back in time, or was restarted (then OnLinkUp follows).
  virtual void OnWorkerLost(WorkerLink& link, const absl::Status& cause) = 0;
  // Every message but hello and heartbeat, while the link is up.
  virtual void OnLinkMessage(WorkerLink& link, const proto::WorkerMessage& message) = 0;
  virtual void OnLinkBulkReply(WorkerLink& link, const proto::BulkReply& reply) = 0;
};

class WorkerLink final {
 public:
  // Connects at the first Tick(). The listener outlives the link.
  WorkerLink(std::string address, WorkerRole role, int index, proto::Identity router, LinkTimes times,
             WorkerChannelFactory factory, WorkerLinkListener* listener);
  WorkerLink(const WorkerLink&) = delete;
  WorkerLink& operator=(const WorkerLink&) = delete;

  // To be called every kTickInterval or so, with a time that never goes back.
  void Tick(absl::Duration now);
  static constexpr absl::Duration kTickInterval = absl::Milliseconds(50);

  // Dropped where the link is not up.
  void Send(proto::RouterMessage message);
  void SendPart(proto::GeneratePart part);

  // While held, a link that is not connected does not connect.
  void Hold(bool is_held) { is_held_ = is_held; }

  const std::string& address() const { return address_; }
  WorkerRole role() const { return role_; }
  int index() const { return index_; }  // among the workers of its role
  bool is_up() const { return state_ == State::kUp; }
  // Of the worker that is up or awaited; 0 = none.
  uint64_t incarnation() const { return incarnation_; }
  // Down, and may still come back as the one it was.
  bool is_awaited() const { return state_ != State::kUp && incarnation_ != 0; }

 private:
  enum class State { kDisconnected, kConnecting, kUp };

  void Connect();
  void OnMessage(const proto::WorkerMessage& message);
  absl::Status CheckHello(const proto::WorkerMessage& message) const;
  void GoDown(const absl::Status& cause);
  void GiveUpWaiting(const absl::Status& cause);

  const std::string address_;
  const WorkerRole role_;
  const int index_;
  const proto::Identity router_;
  const LinkTimes times_;
  const WorkerChannelFactory factory_;
  WorkerLinkListener* const listener_;

  State state_ = State::kDisconnected;
  std::unique_ptr<WorkerChannel> channel_;
  std::unique_ptr<WorkerChannel> retired_channel_;  // closed by an event of its own: destroyed at the next tick
  absl::Duration now_ = absl::ZeroDuration();
  base::OwnStall own_stall_;
  absl::Duration state_since_ = absl::ZeroDuration();
  absl::Duration heard_at_ = absl::ZeroDuration();
  absl::Duration heartbeat_at_ = absl::ZeroDuration();
  absl::Duration backoff_ = kBackoffMin;
  absl::Duration connect_at_ = absl::ZeroDuration();
  uint64_t heartbeat_sequence_ = 0;
  uint64_t incarnation_ = 0;
  bool is_held_ = false;
  absl::Duration awaited_until_ = absl::ZeroDuration();
  bool is_proven_ = false;  // it has sent a heartbeat since it is back: one that only greets wins no time by it
  absl::Status loss_;       // why it is awaited
};

}  // namespace tandem::router

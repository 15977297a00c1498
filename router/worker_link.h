// Keeps one worker connected: greets it, checks who answers, sends heartbeats, notices silence, connects again.
//
// Pure of sockets and clocks: a WorkerChannel moves the messages and Tick() brings the time, so that tests and
// //tests/sim drive it. A worker is *up* from its hello until its channel closes or it is silent for kSilenceMax.
// Suspicion lets the router stop using a worker; it never decides what becomes of the worker's own state. Where this
// process itself was stalled (ticks far apart), silence is not held against the worker. Tested by worker_link_test.cc
// (fake channel, fake time) and router_integration_test.cc (gRPC).
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/worker_channel.h"

namespace tandem::router {

inline constexpr absl::Duration kHeartbeatInterval = absl::Milliseconds(250);
inline constexpr absl::Duration kSilenceMax = absl::Milliseconds(750);
inline constexpr absl::Duration kHelloWaitMax = absl::Seconds(2);
inline constexpr absl::Duration kBackoffMin = absl::Milliseconds(100);
inline constexpr absl::Duration kBackoffMax = absl::Seconds(2);

class WorkerLink;

class WorkerLinkListener {
 public:
  virtual ~WorkerLinkListener() = default;
  virtual void OnLinkUp(WorkerLink& link, const proto::WorkerHello& hello) = 0;
  // Also for an attempt to connect that failed: the cause is what /statusz shows.
  virtual void OnLinkDown(WorkerLink& link, bool was_up, const absl::Status& cause) = 0;
  // Every message but hello and heartbeat, while the link is up.
  virtual void OnLinkMessage(WorkerLink& link, const proto::WorkerMessage& message) = 0;
  virtual void OnLinkBulkReply(WorkerLink& link, const proto::BulkReply& reply) = 0;
};

class WorkerLink final {
 public:
  // Connects at the first Tick(). The listener outlives the link.
  WorkerLink(std::string address, WorkerRole role, int index, proto::Identity router, WorkerChannelFactory factory,
             WorkerLinkListener* listener);
  WorkerLink(const WorkerLink&) = delete;
  WorkerLink& operator=(const WorkerLink&) = delete;

  // To be called every kTickInterval or so, with a time that never goes back.
  void Tick(absl::Duration now);
  static constexpr absl::Duration kTickInterval = absl::Milliseconds(50);

  // Dropped where the link is not up.
  void Send(proto::RouterMessage message);
  void SendPart(proto::GeneratePart part);

  const std::string& address() const { return address_; }
  WorkerRole role() const { return role_; }
  int index() const { return index_; }  // among the workers of its role
  bool is_up() const { return state_ == State::kUp; }

 private:
  enum class State { kDisconnected, kConnecting, kUp };

  void Connect();
  void OnMessage(const proto::WorkerMessage& message);
  absl::Status CheckHello(const proto::WorkerMessage& message) const;
  void GoDown(const absl::Status& cause);

  const std::string address_;
  const WorkerRole role_;
  const int index_;
  const proto::Identity router_;
  const WorkerChannelFactory factory_;
  WorkerLinkListener* const listener_;

  State state_ = State::kDisconnected;
  std::unique_ptr<WorkerChannel> channel_;
  std::unique_ptr<WorkerChannel> retired_channel_;  // closed by an event of its own: destroyed at the next tick
  absl::Duration now_ = absl::ZeroDuration();
  bool has_ticked_ = false;
  absl::Duration state_since_ = absl::ZeroDuration();
  absl::Duration heard_at_ = absl::ZeroDuration();
  absl::Duration heartbeat_at_ = absl::ZeroDuration();
  absl::Duration backoff_ = kBackoffMin;
  absl::Duration connect_at_ = absl::ZeroDuration();
  uint64_t heartbeat_sequence_ = 0;
};

}  // namespace tandem::router

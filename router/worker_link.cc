#include "router/worker_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/protocol_version.h"

namespace tandem::router {

WorkerLink::WorkerLink(std::string address, WorkerRole role, int index, proto::Identity router, LinkTimes times,
                       WorkerChannelFactory factory, WorkerLinkListener* listener)
    : address_(std::move(address)),
      role_(role),
      index_(index),
      router_(std::move(router)),
      times_(times),
      factory_(std::move(factory)),
      listener_(listener),
      own_stall_(times.heartbeat_interval) {}

void WorkerLink::Tick(absl::Duration now) {
  retired_channel_.reset();
  const absl::Duration lost_time = own_stall_.Observe(now);  // we did not listen either
  heard_at_ += lost_time;
  state_since_ += lost_time;
  awaited_until_ += lost_time;
  now_ = now;
  if (is_awaited() && now >= awaited_until_) GiveUpWaiting(loss_);
  switch (state_) {
    case State::kDisconnected:
      if (now >= connect_at_ && !is_held_) Connect();
      return;
    case State::kConnecting:
      if (now - state_since_ > kHelloWaitMax) {
        GoDown(absl::UnavailableError(absl::StrCat("no hello within ", absl::FormatDuration(kHelloWaitMax))));
      }
      return;
    case State::kUp:
      if (now - heard_at_ > times_.silence_max) {
        GoDown(absl::UnavailableError(absl::StrCat("silent for ", absl::FormatDuration(now - heard_at_))));
        return;
      }
      if (now >= heartbeat_at_) {
        heartbeat_at_ = now + times_.heartbeat_interval;
        proto::RouterMessage message;
        message.mutable_heartbeat()->set_sequence(++heartbeat_sequence_);
        channel_->Send(std::move(message));
      }
  }
}

void WorkerLink::Connect() {
  state_ = State::kConnecting;
  state_since_ = now_;
  WorkerChannel::Events events;
  events.on_message = [this](const proto::WorkerMessage& message) { OnMessage(message); };
  events.on_bulk_reply = [this](const proto::BulkReply& reply) {
    heard_at_ = now_;
    if (state_ == State::kUp) listener_->OnLinkBulkReply(*this, reply);
  };
  events.on_closed = [this](const absl::Status& cause) { GoDown(cause); };
  channel_ = factory_(address_, role_, std::move(events));
  proto::RouterMessage message;
  *message.mutable_hello() = router_;
  channel_->Send(std::move(message));
}

void WorkerLink::OnMessage(const proto::WorkerMessage& message) {
  heard_at_ = now_;
  if (state_ == State::kConnecting) {
    if (absl::Status status = CheckHello(message); !status.ok()) return GoDown(status);
    if (absl::Status status = listener_->CheckWorker(*this, message.hello()); !status.ok()) return GoDown(status);
    const uint64_t incarnation = message.hello().identity().incarnation();
    const bool is_back = incarnation_ == incarnation;
    if (is_awaited() && !is_back) GiveUpWaiting(absl::UnavailableError("worker was restarted"));
    incarnation_ = incarnation;
    is_proven_ = !is_back;
    state_ = State::kUp;
    state_since_ = now_;
    backoff_ = kBackoffMin;
    heartbeat_at_ = now_;
    listener_->OnLinkUp(*this, message.hello(), is_back);
    return;
  }
  if (state_ != State::kUp) return;
  if (message.has_heartbeat()) {
    is_proven_ = true;
    return;
  }
  if (message.has_hello()) return GoDown(absl::InternalError("second hello on one stream"));
  listener_->OnLinkMessage(*this, message);
}

absl::Status WorkerLink::CheckHello(const proto::WorkerMessage& message) const {
  if (!message.has_hello()) return absl::InternalError("first message is not a hello");
  const proto::Identity& identity = message.hello().identity();
  if (identity.role() != WorkerRoleName(role_)) {
    return absl::FailedPreconditionError(absl::StrCat(address_, " is a ",
                                                      identity.role().empty() ? "nameless" : identity.role(),
                                                      " worker, not a ", WorkerRoleName(role_), " worker"));
  }
  if (identity.incarnation() == 0) return absl::FailedPreconditionError("incarnation is 0");
  if (identity.protocol_version() != proto::kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat("protocol version is ", identity.protocol_version(),
                                                      ", this router speaks ", proto::kProtocolVersion));
  }
  if (role_ == WorkerRole::kPrefill && message.hello().bootstrap_address().empty()) {
    return absl::FailedPreconditionError("prefill worker names no bootstrap address");
  }
  return absl::OkStatus();
}

void WorkerLink::GoDown(const absl::Status& cause) {
  if (state_ == State::kDisconnected) return;
  const bool was_up = state_ == State::kUp;
  state_ = State::kDisconnected;
  state_since_ = now_;
  retired_channel_ = std::move(channel_);
  if (was_up) {
    connect_at_ = now_;
    if (is_proven_) {
      awaited_until_ = now_ + kReattachWaitMax;
      loss_ = cause;
    }
  } else {
    connect_at_ = now_ + backoff_;
    backoff_ = std::min(2 * backoff_, kBackoffMax);
  }
  listener_->OnLinkDown(*this, was_up, cause);
}

void WorkerLink::GiveUpWaiting(const absl::Status& cause) {
  incarnation_ = 0;
  listener_->OnWorkerLost(*this, cause);
}

void WorkerLink::Send(proto::RouterMessage message) {
  if (is_up()) channel_->Send(std::move(message));
}

void WorkerLink::SendPart(proto::GeneratePart part) {
  if (is_up()) channel_->SendPart(std::move(part));
}

}  // namespace tandem::router

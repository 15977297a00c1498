// What has happened to one request and has not been looked at yet. Filled by the cluster and the client's connection,
// emptied by the request's coroutine; all on the shard's thread.
//
// Bounded: tokens come at most max_new_tokens times (RequestState ends a request that gets more), everything else once.
// Tested through router_integration_test.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "router/cluster.h"

namespace tandem::router {

class RequestInbox final : public RequestListener {
 public:
  struct Tokens {
    int64_t first_position;
    std::vector<TokenId> tokens;
    RequestState::SequenceFinish finish;
  };
  struct Ended {
    absl::Status error;
    bool is_cancelled;
  };
  struct WorkerLost {
    absl::Status cause;
  };
  using WorkerEvent = std::variant<Tokens, Ended, WorkerLost>;

  // wake is called after each event.
  explicit RequestInbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void OnTokens(int64_t first_position, absl::Span<const TokenId> tokens,
                RequestState::SequenceFinish finish) override {
    events_.push_back(Tokens{first_position, {tokens.begin(), tokens.end()}, finish});
    wake_();
  }
  void OnEnded(const absl::Status& error, bool is_cancelled) override {
    events_.push_back(Ended{error, is_cancelled});
    wake_();
  }
  void OnWorkerLost(const absl::Status& cause) override {
    events_.push_back(WorkerLost{cause});
    wake_();
  }
  void OnClientLeft() {
    has_client_left_ = true;
    wake_();
  }
  void OnDrained() {
    is_drained_ = true;
    wake_();
  }
  void OnGiveUp(const absl::Status& cause) {
    give_up_ = cause;
    wake_();
  }

  // Events of the worker in order; the others go before them.
  std::optional<WorkerEvent> TakeWorkerEvent() {
    if (events_.empty()) return std::nullopt;
    WorkerEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  void DropWorkerEvents() { events_.clear(); }
  bool has_client_left() const { return has_client_left_; }
  bool TakeClientLeft() { return std::exchange(has_client_left_, false); }
  bool TakeDrained() { return std::exchange(is_drained_, false); }
  absl::Status TakeGiveUp() { return std::exchange(give_up_, absl::OkStatus()); }

 private:
  const std::function<void()> wake_;
  std::deque<WorkerEvent> events_;
  bool has_client_left_ = false;
  bool is_drained_ = false;
  absl::Status give_up_;
};

}  // namespace tandem::router

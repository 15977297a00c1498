// What the workers have said of one prompt and has not been looked at yet. Filled by the cluster, emptied by the
// request's coroutine; all on the shard's thread.
//
// Bounded: of each choice as many tokens wait as its worker was given credit for (Cluster::TokensTaken), everything
// else comes once. Tested through worker_loss_integration_test.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "router/cluster.h"

namespace tandem::router {

class RequestInbox final : public RequestListener {
 public:
  struct Ended {
    absl::Status error;
    bool is_cancelled;
  };
  struct WorkerLost {
    absl::Status cause;
  };
  using WorkerEvent = std::variant<GeneratedTokens, Ended, WorkerLost, proto::TransferReport>;

  // wake is called after each event.
  explicit RequestInbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void OnTokens(GeneratedTokens tokens) override {
    events_.push_back(std::move(tokens));
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

  void OnTransfer(const proto::TransferReport& report) override { events_.push_back(report); }  // Ended wakes

  // Events in order; front() is there unless empty.
  bool empty() const { return events_.empty(); }
  WorkerEvent& front() { return events_.front(); }
  void Pop() { events_.pop_front(); }
  void DropWorkerEvents() { events_.clear(); }

 private:
  const std::function<void()> wake_;
  std::deque<WorkerEvent> events_;
};

}  // namespace tandem::router

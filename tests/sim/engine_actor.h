// The engine thread of a simulated worker: messages run at the top of a step, steps take time, and between them the
// engine sleeps until its next wake, exactly as worker_shell/engine_thread.h does it.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/fault_plan.h"

namespace tandem::sim {

template <typename Engine>
class EngineActor final : public std::enable_shared_from_this<EngineActor<Engine>> {
 public:
  // Both outlive the actor's life; events that come after Stop() do nothing.
  EngineActor(EventQueue& events, const FaultPlan& plan, Engine& engine)
      : events_(events), plan_(plan), engine_(&engine) {}

  void Post(std::function<void(Engine&)> message) {
    if (engine_ == nullptr) return;
    mailbox_.push_back(std::move(message));
    WakeAt(std::max(events_.now(), busy_until_));
  }
  void Stop() {
    engine_ = nullptr;
    mailbox_.clear();
  }

 private:
  void WakeAt(absl::Duration time) {
    if (is_running_ || time >= wakes_at_) return;
    wakes_at_ = time;
    events_.After(time - events_.now(), [self = this->shared_from_this(), time] {
      if (self->engine_ == nullptr || self->wakes_at_ != time) return;  // dead, or woken earlier
      self->Run();
    });
  }
  void Run() {
    wakes_at_ = absl::InfiniteDuration();
    is_running_ = true;  // what the step itself posts waits for its end
    const auto steps_before = engine_->counters().steps;
    for (auto& message : std::exchange(mailbox_, {})) message(*engine_);
    engine_->Step();
    is_running_ = false;
    absl::Duration cost = absl::Microseconds(20);
    if (engine_->counters().steps > steps_before) {
      cost = events_.DrawDuration(absl::Milliseconds(1), absl::Milliseconds(10));
      if (events_.now() < plan_.faults_end && events_.Chance(plan_.slow_step)) {
        cost += events_.DrawDuration(absl::Milliseconds(20), absl::Milliseconds(500));
      }
    }
    busy_until_ = events_.now() + cost;
    if (!mailbox_.empty()) {
      WakeAt(busy_until_);
    } else if (const absl::Duration next = engine_->NextWake(); next < absl::InfiniteDuration()) {
      WakeAt(std::max(next, busy_until_));
    }
  }

  EventQueue& events_;
  const FaultPlan& plan_;
  Engine* engine_;
  std::vector<std::function<void(Engine&)>> mailbox_;
  bool is_running_ = false;
  absl::Duration busy_until_ = absl::ZeroDuration();
  absl::Duration wakes_at_ = absl::InfiniteDuration();
};

}  // namespace tandem::sim

// What an engine last said of itself, for every other thread: heartbeats, admin pages, the drain.
// The engine's thread publishes after each step; nobody else ever reads the engine.
// Tested by engine_status_test.cc.
#pragma once

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/worker.pb.h"
#include "worker_shell/live_options.h"

namespace tandem::worker_shell {

class EngineStatus final {
 public:
  // now: point of the clock.
  template <typename Engine>
  void Publish(const Engine& engine, absl::Duration now) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    load_ = engine.load();
    ++num_steps_;
    is_draining_ = engine.is_draining();
    is_at_rest_ = engine.IsAtRest();
    // Text costs more than a step may: now and then while busy, always before a sleep.
    if (engine.NextWake() > now || now - described_at_ >= kDescribeInterval) {
      description_ = engine.Describe();
      described_at_ = now;
    }
  }

  // step_age: how long the step under way has taken.
  WorkerVitals Vitals(absl::Duration step_age) const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return {.engine_steps = num_steps_, .oldest_work_age = step_age, .load = load_};
  }
  bool is_draining() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return is_draining_;
  }
  std::string description() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return description_;
  }

  // Waits until an engine that drains has nothing left. DEADLINE_EXCEEDED after `limit`.
  absl::Status AwaitDrained(absl::Duration limit) const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    const auto is_drained = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_draining_ && is_at_rest_; };
    if (mutex_.AwaitWithTimeout(absl::Condition(&is_drained), limit)) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat("requests still live after ", absl::FormatDuration(limit)));
  }

 private:
  static constexpr absl::Duration kDescribeInterval = absl::Milliseconds(200);

  mutable absl::Mutex mutex_;
  proto::Load load_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_at_rest_ ABSL_GUARDED_BY(mutex_) = true;
  std::string description_ ABSL_GUARDED_BY(mutex_);
  absl::Duration described_at_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
};

}  // namespace tandem::worker_shell

// Simulated time: events run in order of time, equal times in the order in which they were made. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"

namespace tandem::sim {

class EventQueue final {
 public:
  explicit EventQueue(uint64_t seed) : rng_(seed) {}

  base::FakeClock& clock() { return clock_; }
  absl::Duration now() const { return clock_.Now(); }
  void After(absl::Duration delay, std::function<void()> event) {
    events_.push({now() + std::max(delay, absl::ZeroDuration()), next_sequence_++, std::move(event)});
  }
  // Runs the next event; false where there is none up to `until`, which is then the time.
  bool RunNext(absl::Duration until) {
    if (events_.empty() || events_.top().time > until) {
      clock_.Advance(std::max(until - now(), absl::ZeroDuration()));
      return false;
    }
    std::function<void()> run = std::move(const_cast<Event&>(events_.top()).run);
    clock_.Advance(events_.top().time - now());
    events_.pop();
    ++num_run_;
    run();
    return true;
  }
  int64_t num_run() const { return num_run_; }

  // ---- Chance: the only source of it ----
  uint64_t Draw() { return rng_(); }
  // In [low, high].
  int64_t DrawInt(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1));
  }
  double DrawUnit() { return static_cast<double>(rng_() >> 11) * 0x1p-53; }
  bool Chance(double probability) { return DrawUnit() < probability; }
  absl::Duration DrawDuration(absl::Duration low, absl::Duration high) {
    return absl::Microseconds(DrawInt(absl::ToInt64Microseconds(low), absl::ToInt64Microseconds(high)));
  }

 private:
  struct Event {
    absl::Duration time;
    uint64_t sequence;
    std::function<void()> run;
    bool operator<(const Event& other) const {  // the earliest is on top
      return std::pair(time, sequence) > std::pair(other.time, other.sequence);
    }
  };

  base::FakeClock clock_;
  std::priority_queue<Event> events_;
  uint64_t next_sequence_ = 0;
  int64_t num_run_ = 0;
  std::mt19937_64 rng_;
};

}  // namespace tandem::sim

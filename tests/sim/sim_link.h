// One connection between two simulated processes: ordered and reliable until it is cut.
//
// Messages of one direction and stream arrive in order, each after a delay of its own; streams of one connection do not
// wait for each other. A cut loses what is under way and is noticed by each end on its own, at once (a reset) or late
// (silence). So a message is lost only together with its stream, as with gRPC.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/fault_plan.h"

namespace tandem::sim {

enum class LinkEnd { kClient = 0, kServer = 1 };

class SimLink final : public std::enable_shared_from_this<SimLink> {
 public:
  SimLink(EventQueue& events, const FaultPlan& plan) : events_(events), plan_(plan) {}

  void OnClosed(LinkEnd end, std::function<void()> closed) { closed_[static_cast<int>(end)] = std::move(closed); }

  // `deliver` runs at the other end.
  void Send(LinkEnd from, int stream, std::function<void()> deliver) {
    if (is_cut_) return;
    absl::Duration delay = events_.DrawDuration(absl::Microseconds(30), absl::Milliseconds(2));
    const bool may_be_slow = events_.now() < plan_.faults_end;
    if (may_be_slow && events_.Chance(plan_.slow_message)) {
      delay += events_.DrawDuration(absl::Milliseconds(10), absl::Milliseconds(400));
    }
    absl::Duration& last = last_delivery_[static_cast<int>(from)][stream];
    last = std::max(last, events_.now() + delay);
    events_.After(last - events_.now(), [self = shared_from_this(), deliver = std::move(deliver)] {
      if (!self->is_cut_) deliver();
    });
  }

  void Cut() {
    if (std::exchange(is_cut_, true)) return;
    for (std::function<void()>& closed : closed_) {
      if (closed == nullptr) continue;
      const absl::Duration notices = events_.Chance(0.5)
                                         ? events_.DrawDuration(absl::ZeroDuration(), absl::Milliseconds(5))
                                         : events_.DrawDuration(absl::Milliseconds(5), absl::Milliseconds(750));
      events_.After(notices, std::exchange(closed, nullptr));
    }
  }
  // One end goes away in good order, or dies: it hears nothing, the other end notices.
  void Close(LinkEnd end) {
    closed_[static_cast<int>(end)] = nullptr;
    Cut();
  }
  bool is_cut() const { return is_cut_; }

 private:
  static constexpr int kStreams = 2;

  EventQueue& events_;
  const FaultPlan& plan_;
  bool is_cut_ = false;
  std::array<std::array<absl::Duration, kStreams>, 2> last_delivery_ = {};
  std::array<std::function<void()>, 2> closed_;
};

}  // namespace tandem::sim

// The one thread that owns an engine's state (docs/adr/0003-one-engine-thread.md).
//
// Others post closures, which the thread runs at the top of a step, in order of arrival; then it steps, tells
// `after_step`, and sleeps in the mailbox until the engine's next wake or the next post. Nobody else ever touches the
// engine. Post is refused where the mailbox is full: that is for work that may be refused to whoever asked.
// PostReserved never is: for what releases, ends or reports, whose number is bounded by what was admitted.
// Tested by engine_thread_test.cc.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mailbox.h"

namespace tandem::worker_shell {

template <typename Engine>
class EngineThread final {
 public:
  using Message = std::function<void(Engine&)>;

  // All outlive the thread. `after_step` is called on the thread after every step.
  EngineThread(Engine& engine, const base::Clock& clock, size_t mailbox_capacity,
               std::function<void(const Engine&)> after_step)
      : engine_(engine), clock_(clock), mailbox_(mailbox_capacity), after_step_(std::move(after_step)) {}
  ~EngineThread() { Stop(); }

  void Start() {
    thread_ = std::thread([this] { Run(); });
  }
  // Takes no more messages, runs those that are in, and joins.
  void Stop() {
    mailbox_.Close();
    is_stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }

  [[nodiscard]] bool Post(Message message) { return mailbox_.Push(message); }
  void PostReserved(Message message) { mailbox_.PushReserved(std::move(message)); }

  // How long the step under way has taken, zero between steps: a hung engine is seen from outside by it.
  absl::Duration StepAge() const {
    const int64_t began = step_began_ns_;
    return began == 0 ? absl::ZeroDuration() : clock_.Now() - absl::Nanoseconds(began);
  }
  size_t mailbox_size() const { return mailbox_.size(); }

 private:
  // A bound on every sleep, so that a wake-up that was computed wrong is late and not lost.
  static constexpr absl::Duration kSleepMax = absl::Seconds(1);

  void Run() {
    while (true) {
      const absl::Duration wait = std::clamp(engine_.NextWake() - clock_.Now(), absl::ZeroDuration(), kSleepMax);
      const bool is_last = is_stopping_;  // read before the mailbox: what was posted before Stop() is still run
      std::vector<Message> messages = mailbox_.TakeAll(is_last ? absl::ZeroDuration() : wait);
      step_began_ns_ = absl::ToInt64Nanoseconds(clock_.Now());
      for (const Message& message : messages) message(engine_);
      engine_.Step();
      after_step_(engine_);
      step_began_ns_ = 0;
      if (is_last) return;
    }
  }

  Engine& engine_;
  const base::Clock& clock_;
  base::Mailbox<Message> mailbox_;
  const std::function<void(const Engine&)> after_step_;
  std::atomic<int64_t> step_began_ns_ = 0;  // point of the clock
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

}  // namespace tandem::worker_shell

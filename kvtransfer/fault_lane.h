// A lane that does to its fetches what networks and peers do: fault_spec.h lists the faults. A decorator over any lane,
// for tests and for operators who want to see their cluster suffer before it must.
//
// It keeps every promise of FetchLane: `done` exactly once, nothing touches the target after it, Cancel and Close end
// what is held back. Which fetch gets which fault follows from the spec and the order of the calls of Fetch alone.
// Time is the clock's: fetches that wait are looked at by a thread of its own, which sleeps while none waits.
// Tested by fault_lane_test.cc and lane_conformance_test.cc.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "kvtransfer/fault_spec.h"
#include "kvtransfer/fetch_lane.h"

namespace tandem::kvtransfer {

class FaultLane final : public FetchLane {
 public:
  // `target` is the pool that `inner` writes; the clock outlives the lane.
  FaultLane(std::unique_ptr<FetchLane> inner, std::span<std::byte> target, FaultSpec spec, const base::Clock& clock);
  ~FaultLane() override;  // closes

  std::string_view kind() const override { return kind_; }  // "fault"; the inner lane's is in /statusz by its own
  void Fetch(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) override;
  void Cancel(uint64_t epoch) override;
  void Close() override;

  // How often each fault has struck.
  std::map<Fault, uint64_t> counts() const;

 private:
  struct Held {
    uint64_t epoch = 0;
    uint64_t index = 0;
    Fault fault = Fault::kNone;
    bool is_cancelled = false;
    std::vector<ByteRun> runs;
    std::function<void(absl::Status)> done;
    absl::Duration due;  // point of the clock; InfiniteDuration: never
  };

  void RunTimer();
  void Start(Held held);
  // Without cancelled ones: those that may start. With: also those whose end is due.
  std::vector<Held> TakeDue(bool with_cancelled) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FlipOneBit(const std::vector<ByteRun>& runs, uint64_t index);
  bool IsTimerNeeded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string kind_ = "fault";
  const std::unique_ptr<FetchLane> inner_;
  const std::span<std::byte> target_;
  const FaultSpec spec_;
  const base::Clock& clock_;
  mutable absl::Mutex mutex_;
  uint64_t next_index_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Duration stalled_until_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
  std::vector<Held> held_ ABSL_GUARDED_BY(mutex_);  // in order of arrival
  std::map<Fault, uint64_t> counts_ ABSL_GUARDED_BY(mutex_);
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Mutex join_mutex_;
  std::thread timer_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace tandem::kvtransfer

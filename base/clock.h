// The only clock. Everything that measures or waits takes a Clock&, so that tests and the simulator own time.
//
// Time is a duration since boot (CLOCK_BOOTTIME: it goes on while the machine is suspended, so a lease that lapsed in
// suspend is seen as lapsed). Wall-clock time exists only in log lines and in the OpenAI `created` field.
// Tested by clock_test.cc.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem::base {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Duration Now() const = 0;   // since boot; never goes back
  virtual absl::Time WallTime() const = 0;  // for people and for `created`, never for decisions
};

// The machine's clock; lives for ever.
const Clock& RealClock();

class FakeClock final : public Clock {
 public:
  absl::Duration Now() const override;
  absl::Time WallTime() const override;
  void Advance(absl::Duration by);

 private:
  mutable absl::Mutex mutex_;
  absl::Duration now_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(1);
};

}  // namespace tandem::base

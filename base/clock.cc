#include "base/clock.h"

#include <time.h>

#include "base/check.h"

namespace tandem::base {
namespace {

class BootClock final : public Clock {
 public:
  absl::Duration Now() const override {
    timespec now;
    TANDEM_CHECK(clock_gettime(CLOCK_BOOTTIME, &now) == 0, "the kernel has no CLOCK_BOOTTIME");
    return absl::DurationFromTimespec(now);
  }
  absl::Time WallTime() const override { return absl::Now(); }
};

}  // namespace

const Clock& RealClock() {
  static const BootClock* clock = new BootClock;
  return *clock;
}

absl::Duration FakeClock::Now() const {
  absl::MutexLock lock(&mutex_);
  return now_;
}

absl::Time FakeClock::WallTime() const { return absl::UnixEpoch() + Now(); }

void FakeClock::Advance(absl::Duration by) {
  TANDEM_CHECK(by >= absl::ZeroDuration(), "time never goes back");
  absl::MutexLock lock(&mutex_);
  now_ += by;
}

}  // namespace tandem::base

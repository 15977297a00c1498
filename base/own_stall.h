// Tells a loop how long it did not run, so that it takes its own sleep for nobody else's silence.
//
// Whoever judges others by how long they have been silent calls Observe() in every turn. A process that was stopped, or
// starved of its core, has not listened either: the time it lost is to be added to whatever it has noted of others.
// Knows no clock. Tested by own_stall_test.cc.
#pragma once

#include "absl/time/time.h"

namespace tandem::base {

class OwnStall final {
 public:
  // turn_max: turns further apart than this count as lost time.
  explicit OwnStall(absl::Duration turn_max) : turn_max_(turn_max) {}

  // now: never goes back. The time lost since the last turn, zero where the loop is well.
  absl::Duration Observe(absl::Duration now) {
    const absl::Duration gap = now - last_;
    last_ = now;
    return gap > turn_max_ ? gap : absl::ZeroDuration();
  }

 private:
  const absl::Duration turn_max_;
  absl::Duration last_ = absl::InfiniteDuration();  // before the first turn: nothing is lost
};

}  // namespace tandem::base

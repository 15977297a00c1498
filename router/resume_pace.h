// When prompts whose workers have failed may go on elsewhere: at most so many a second, a burst at once.
//
// The workers that are left get the prompts of the one that died on top of their own: each costs them a prefill and
// the replay of its tokens. Whoever comes too many is told a later point of time, in order; nobody is refused. One for
// each shard. Pure. Tested by resume_pace_test.cc.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace tandem::router {

class ResumePace final {
 public:
  // per_second: at least 1. As many may go at once after a quiet second.
  explicit ResumePace(int per_second) : interval_(absl::Seconds(1) / per_second) {}

  // The point of time, now or later, at which one more may go.
  absl::Duration Reserve(absl::Duration now) {
    next_ = std::max(next_, now - absl::Seconds(1)) + interval_;
    return std::max(now, next_);
  }

 private:
  const absl::Duration interval_;
  absl::Duration next_ = -absl::InfiniteDuration();
};

}  // namespace tandem::router

// How fast requests have left a shard lately, and from it how long a further one will wait.
//
// Counts completions by the second over the last kWindow, or since the shard last became busy where that is shorter: an
// idle hour says nothing about the rate under load. At least one completion is assumed, so that a shard on which
// nothing has ended yet answers with the time that it has been busy. Pure of clocks. Tested by completion_rate_test.cc.
#pragma once

#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace tandem::router {

class CompletionRate final {
 public:
  static constexpr int kWindowSeconds = 30;

  // The shard has become busy: what was before is forgotten. Times never go back.
  void Restart(absl::Duration now);
  void Count(absl::Duration now);
  // Until `count` more have left, should they go on as in the window.
  absl::Duration TimeFor(int64_t count, absl::Duration now) const;

 private:
  struct Second {
    int64_t index = -1;  // on the clock; what is older than the window does not count
    int64_t completions = 0;
  };

  absl::Duration busy_since_ = absl::ZeroDuration();
  std::array<Second, kWindowSeconds> seconds_;
};

}  // namespace tandem::router

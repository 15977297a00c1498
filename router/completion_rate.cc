#include "router/completion_rate.h"

#include <algorithm>

namespace tandem::router {

void CompletionRate::Restart(absl::Duration now) {
  busy_since_ = now;
  seconds_.fill(Second());
}

void CompletionRate::Count(absl::Duration now) {
  const int64_t index = absl::ToInt64Seconds(now);
  Second& second = seconds_[index % kWindowSeconds];
  if (second.index != index) second = {.index = index, .completions = 0};
  ++second.completions;
}

absl::Duration CompletionRate::TimeFor(int64_t count, absl::Duration now) const {
  const int64_t oldest = absl::ToInt64Seconds(now) - kWindowSeconds + 1;
  int64_t completions = 0;
  for (const Second& second : seconds_) completions += second.index >= oldest ? second.completions : 0;
  const absl::Duration window_begin = std::max(busy_since_, absl::Seconds(oldest));
  return (now - window_begin) * count / std::max<int64_t>(completions, 1);
}

}  // namespace tandem::router

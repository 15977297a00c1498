#include "router/timeline/request_timeline.h"

#include <algorithm>
#include <utility>

namespace tandem::router {

const char* TimelinePlaceName(TimelinePlace place) {
  switch (place) {
    case TimelinePlace::kRouter:
      return "router";
    case TimelinePlace::kDecode:
      return "decode";
    case TimelinePlace::kPrefill:
      return "prefill";
    case TimelinePlace::kTransfer:
      return "transfer";
  }
  return "";
}

void RequestTimeline::Rename(const std::string& id) {
  absl::MutexLock lock(&mutex_);
  origin_.id = id;
}

void RequestTimeline::Add(const char* name, TimelinePlace place, int prompt, absl::Duration from, absl::Duration to,
                          absl::string_view detail) {
  absl::MutexLock lock(&mutex_);
  if (events_.size() >= kEventsMax) {
    ++num_dropped_;
    return;
  }
  events_.push_back({.name = name,
                     .place = place,
                     .prompt = prompt,
                     .at = from - origin_.began_at,
                     .took = std::max(to - from, absl::ZeroDuration()),
                     .detail = std::string(detail.substr(0, kDetailBytesMax))});
}

void RequestTimeline::Waited(absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  longest_wait_ = std::max(longest_wait_, time);
}

void RequestTimeline::Ended(End end) {
  absl::MutexLock lock(&mutex_);
  end.error.resize(std::min(end.error.size(), kDetailBytesMax));
  end_ = std::move(end);
}

bool RequestTimeline::IsNamed(absl::string_view id) const {
  absl::MutexLock lock(&mutex_);
  return origin_.id == id || origin_.http_id == id;
}

absl::Duration RequestTimeline::longest_wait() const {
  absl::MutexLock lock(&mutex_);
  return longest_wait_;
}

RequestTimeline::Snapshot RequestTimeline::snapshot() const {
  Snapshot snapshot;
  {
    absl::MutexLock lock(&mutex_);
    snapshot = {origin_, end_, longest_wait_, events_, num_dropped_};
  }
  std::stable_sort(snapshot.events.begin(), snapshot.events.end(),
                   [](const TimelineEvent& a, const TimelineEvent& b) { return a.at < b.at; });
  return snapshot;
}

RequestTimeline::Snapshot RequestTimeline::summary() const {
  absl::MutexLock lock(&mutex_);
  return {origin_, end_, longest_wait_, {}, num_dropped_};
}

}  // namespace tandem::router

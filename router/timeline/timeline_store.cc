#include "router/timeline/timeline_store.h"

#include <algorithm>
#include <utility>

namespace tandem::router {

TimelineStore::Timeline TimelineStore::Begin(RequestTimeline::Origin origin) {
  if (recent_max_ == 0) return nullptr;
  auto timeline = std::make_shared<RequestTimeline>(std::move(origin));
  absl::MutexLock lock(&mutex_);
  running_.push_back(timeline);
  return timeline;
}

void TimelineStore::End(const Timeline& timeline, absl::Duration now) {
  if (timeline == nullptr) return;
  const absl::Duration wait = timeline->longest_wait();
  absl::MutexLock lock(&mutex_);
  running_.remove(timeline);
  recent_.push_front(timeline);
  if (recent_.size() > recent_max_) recent_.pop_back();
  std::erase_if(slow_, [&](const SlowOne& slow) { return now - slow.ended_at > kSlowWindow; });
  const auto place = std::find_if(slow_.begin(), slow_.end(), [&](const SlowOne& slow) { return slow.wait < wait; });
  slow_.insert(place, {timeline, wait, now});
  if (slow_.size() > kSlowMax) slow_.pop_back();
}

TimelineStore::Timeline TimelineStore::Find(absl::string_view id) const {
  absl::MutexLock lock(&mutex_);
  for (auto it = running_.rbegin(); it != running_.rend(); ++it) {
    if ((*it)->IsNamed(id)) return *it;
  }
  for (const Timeline& timeline : recent_) {
    if (timeline->IsNamed(id)) return timeline;
  }
  for (const SlowOne& slow : slow_) {
    if (slow.timeline->IsNamed(id)) return slow.timeline;
  }
  return nullptr;
}

std::vector<TimelineStore::Timeline> TimelineStore::Running() const {
  absl::MutexLock lock(&mutex_);
  return {running_.begin(), running_.end()};
}

std::vector<TimelineStore::Timeline> TimelineStore::Recent() const {
  absl::MutexLock lock(&mutex_);
  return {recent_.begin(), recent_.end()};
}

std::vector<TimelineStore::Timeline> TimelineStore::Slow(absl::Duration now) const {
  std::vector<Timeline> timelines;
  absl::MutexLock lock(&mutex_);
  for (const SlowOne& slow : slow_) {
    if (now - slow.ended_at <= kSlowWindow) timelines.push_back(slow.timeline);
  }
  return timelines;
}

}  // namespace tandem::router

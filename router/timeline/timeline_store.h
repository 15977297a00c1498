// The timelines of a process: of requests that run, of those that ended last, and of those whose clients waited
// longest.
//
// Bounded: what runs by the requests in flight and in line, the rest by count; one timeline has at most some 100 KB,
// as a rule 2 KB. Thread-safe, shared by the shards. Tested by timeline_store_test.cc.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "router/timeline/request_timeline.h"

namespace tandem::router {

class TimelineStore final {
 public:
  using Timeline = std::shared_ptr<RequestTimeline>;
  static constexpr absl::Duration kSlowWindow = absl::Hours(1);
  static constexpr size_t kSlowMax = 32;

  // recent_max: ended requests that are kept; 0 keeps none, and Begin() gives none.
  explicit TimelineStore(size_t recent_max) : recent_max_(recent_max) {}

  // nullptr where none are kept. To be given back to End().
  Timeline Begin(RequestTimeline::Origin origin) ABSL_LOCKS_EXCLUDED(mutex_);
  // now: of the clock of began_at.
  void End(const Timeline& timeline, absl::Duration now) ABSL_LOCKS_EXCLUDED(mutex_);

  // The latest one of that id or http_id; nullptr where there is none.
  Timeline Find(absl::string_view id) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<Timeline> Running() const ABSL_LOCKS_EXCLUDED(mutex_);  // oldest first
  std::vector<Timeline> Recent() const ABSL_LOCKS_EXCLUDED(mutex_);   // that ended last first
  // Of the last hour, those first whose clients waited longest for a token.
  std::vector<Timeline> Slow(absl::Duration now) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct SlowOne {
    Timeline timeline;
    absl::Duration wait;
    absl::Duration ended_at;
  };

  const size_t recent_max_;
  mutable absl::Mutex mutex_;
  std::list<Timeline> running_ ABSL_GUARDED_BY(mutex_);
  std::deque<Timeline> recent_ ABSL_GUARDED_BY(mutex_);  // newest first
  std::vector<SlowOne> slow_ ABSL_GUARDED_BY(mutex_);    // longest wait first
};

}  // namespace tandem::router

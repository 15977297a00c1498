// What happened to one request, and when, as its router saw it and its workers told: for /debug/requests.
//
// A few spans and moments a request, none a token: what is recorded costs nothing on the way of a token. At most
// kEventsMax of them, each with at most kDetailBytesMax of words; what comes after that is counted and dropped. No
// prompt text and no token is in it. Written by the request's shard, read by any thread.
// Tested by request_timeline_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::router {

// Where something happened: a track of the picture.
enum class TimelinePlace { kRouter, kDecode, kPrefill, kTransfer };
const char* TimelinePlaceName(TimelinePlace place);

struct TimelineEvent {
  const char* name = "";  // static storage
  TimelinePlace place = TimelinePlace::kRouter;
  int prompt = 0;           // of the request
  absl::Duration at;        // since the request had come in
  absl::Duration took;      // zero: a moment
  std::string detail = {};  // for people
};

class RequestTimeline final {
 public:
  static constexpr size_t kEventsMax = 200;
  static constexpr size_t kDetailBytesMax = 300;

  struct Origin {
    std::string id;
    std::string http_id;
    std::string trace_parent;            // W3C; "" where the client sent none
    absl::Duration began_at;             // of the router's clock
    absl::Time began_on = absl::Time();  // of the wall
  };
  struct End {
    int http_status = 0;  // 0: not ended
    std::string finish;
    std::string error;
    int64_t num_prompt_tokens = 0;
    int64_t num_generated = 0;
    absl::Duration took;
  };
  struct Snapshot {
    Origin origin;
    End end;
    absl::Duration longest_wait;  // of the client for a token
    std::vector<TimelineEvent> events;
    size_t num_dropped = 0;
  };

  explicit RequestTimeline(Origin origin) : origin_(std::move(origin)) {}

  // The id that the client has chosen takes the place of the router's.
  void Rename(const std::string& id) ABSL_LOCKS_EXCLUDED(mutex_);
  // From one point of the router's clock to another; equal points are a moment.
  void Add(const char* name, TimelinePlace place, int prompt, absl::Duration from, absl::Duration to,
           absl::string_view detail = "") ABSL_LOCKS_EXCLUDED(mutex_);
  // The client waited so long for a token: the first one, or the next.
  void Waited(absl::Duration time) ABSL_LOCKS_EXCLUDED(mutex_);
  void Ended(End end) ABSL_LOCKS_EXCLUDED(mutex_);

  bool IsNamed(absl::string_view id) const ABSL_LOCKS_EXCLUDED(mutex_);  // by its id or its x-request-id
  absl::Duration longest_wait() const ABSL_LOCKS_EXCLUDED(mutex_);
  Snapshot snapshot() const ABSL_LOCKS_EXCLUDED(mutex_);  // events in the order of their beginning
  Snapshot summary() const ABSL_LOCKS_EXCLUDED(mutex_);   // without events

 private:
  mutable absl::Mutex mutex_;
  Origin origin_ ABSL_GUARDED_BY(mutex_);
  End end_ ABSL_GUARDED_BY(mutex_);
  absl::Duration longest_wait_ ABSL_GUARDED_BY(mutex_);
  std::vector<TimelineEvent> events_ ABSL_GUARDED_BY(mutex_);
  size_t num_dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem::router

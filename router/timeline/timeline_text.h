// Timelines as JSON, and as a trace that Perfetto and chrome://tracing open. docs/operations.md shows both.
// Tested by timeline_text_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "router/timeline/timeline_store.h"

namespace tandem::router {

// What a list says of a request: an object without its events.
std::string TimelineLineJson(const RequestTimeline::Snapshot& timeline, absl::Duration now);
// {"running": [...], "recent": [...], "slow": [...]}: a line of each. Of those that run, the oldest kRunningShownMax;
// running_total says how many there are.
inline constexpr size_t kRunningShownMax = 1000;
std::string TimelineListJson(const TimelineStore& store, absl::Duration now);
// One request with its events. now: for how long it has run, where it runs.
std::string TimelineJson(const RequestTimeline::Snapshot& timeline, absl::Duration now);
// The Trace Event Format: a thread for each place, a span or an instant for each event.
std::string TimelineTrace(const RequestTimeline::Snapshot& timeline, absl::Duration now);

}  // namespace tandem::router

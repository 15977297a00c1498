#include "router/timeline/timeline_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "router/openai/json_text.h"

namespace tandem::router {
namespace {

std::string Millis(absl::Duration time) { return absl::StrFormat("%.3f", absl::ToDoubleMilliseconds(time)); }
std::string Micros(absl::Duration time) { return absl::StrFormat("%.1f", absl::ToDoubleMicroseconds(time)); }

bool HasEnded(const RequestTimeline::Snapshot& timeline) { return timeline.end.http_status != 0; }

absl::Duration TookSoFar(const RequestTimeline::Snapshot& timeline, absl::Duration now) {
  return HasEnded(timeline) ? timeline.end.took : now - timeline.origin.began_at;
}

// The members that a list and a single request have in common, without braces.
std::string Head(const RequestTimeline::Snapshot& timeline, absl::Duration now) {
  const RequestTimeline::Origin& origin = timeline.origin;
  const RequestTimeline::End& end = timeline.end;
  return absl::StrCat(
      "\"id\":", JsonString(origin.id), ",\"x_request_id\":", JsonString(origin.http_id),
      ",\"traceparent\":", origin.trace_parent.empty() ? "null" : JsonString(origin.trace_parent),
      ",\"began\":", JsonString(absl::FormatTime(absl::RFC3339_full, origin.began_on, absl::UTCTimeZone())),
      ",\"took_ms\":", Millis(TookSoFar(timeline, now)), ",\"longest_wait_ms\":", Millis(timeline.longest_wait),
      ",\"status\":", HasEnded(timeline) ? absl::StrCat(end.http_status) : "null",
      ",\"finish\":", HasEnded(timeline) ? JsonString(end.finish) : "null",
      ",\"error\":", end.error.empty() ? "null" : JsonString(end.error), ",\"prompt_tokens\":", end.num_prompt_tokens,
      ",\"completion_tokens\":", end.num_generated);
}

std::string List(const std::vector<TimelineStore::Timeline>& timelines, absl::Duration now) {
  std::string list;
  for (const TimelineStore::Timeline& timeline : timelines) {
    absl::StrAppend(&list, list.empty() ? "" : ",", TimelineLineJson(timeline->summary(), now));
  }
  return list;
}

}  // namespace

std::string TimelineLineJson(const RequestTimeline::Snapshot& timeline, absl::Duration now) {
  return absl::StrCat("{", Head(timeline, now), "}");
}

std::string TimelineListJson(const TimelineStore& store, absl::Duration now) {
  std::vector<TimelineStore::Timeline> running = store.Running();
  const size_t num_running = running.size();
  running.resize(std::min(num_running, kRunningShownMax));
  return absl::StrCat("{\"running\":[", List(running, now), "],\"running_total\":", num_running, ",\"recent\":[",
                      List(store.Recent(), now), "],\"slow\":[", List(store.Slow(now), now), "]}");
}

std::string TimelineJson(const RequestTimeline::Snapshot& timeline, absl::Duration now) {
  std::string events;
  for (const TimelineEvent& event : timeline.events) {
    absl::StrAppend(&events, events.empty() ? "{" : ",{", "\"name\":", JsonString(event.name), ",\"place\":\"",
                    TimelinePlaceName(event.place), "\",\"prompt\":", event.prompt, ",\"at_ms\":", Millis(event.at),
                    ",\"took_ms\":", Millis(event.took), ",\"detail\":", JsonString(event.detail), "}");
  }
  return absl::StrCat("{", Head(timeline, now), ",\"dropped_events\":", timeline.num_dropped, ",\"events\":[", events,
                      "]}");
}

std::string TimelineTrace(const RequestTimeline::Snapshot& timeline, absl::Duration now) {
  std::string events = absl::StrCat(
      "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":", JsonString(timeline.origin.id), "}}");
  constexpr TimelinePlace kPlaces[] = {TimelinePlace::kRouter, TimelinePlace::kDecode, TimelinePlace::kPrefill,
                                       TimelinePlace::kTransfer};
  const auto thread_of = [](TimelinePlace place, int prompt) { return 1 + prompt * 4 + static_cast<int>(place); };
  int num_prompts = 1;
  for (const TimelineEvent& event : timeline.events) num_prompts = std::max(num_prompts, event.prompt + 1);
  for (int prompt = 0; prompt < num_prompts; ++prompt) {
    for (const TimelinePlace place : kPlaces) {
      const std::string name =
          num_prompts == 1 ? TimelinePlaceName(place) : absl::StrCat("prompt ", prompt, ": ", TimelinePlaceName(place));
      absl::StrAppend(&events, ",{\"ph\":\"M\",\"pid\":1,\"tid\":", thread_of(place, prompt),
                      ",\"name\":\"thread_name\",\"args\":{\"name\":", JsonString(name), "}}");
    }
  }
  absl::StrAppend(&events, ",{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"name\":\"request\",\"ts\":0,\"dur\":",
                  Micros(TookSoFar(timeline, now)), ",\"args\":{", Head(timeline, now), "}}");
  for (const TimelineEvent& event : timeline.events) {
    absl::StrAppend(&events, ",{\"pid\":1,\"tid\":", thread_of(event.place, event.prompt),
                    ",\"name\":", JsonString(event.name), ",\"ts\":", Micros(event.at));
    if (event.took > absl::ZeroDuration()) {
      absl::StrAppend(&events, ",\"ph\":\"X\",\"dur\":", Micros(event.took));
    } else {
      absl::StrAppend(&events, ",\"ph\":\"i\",\"s\":\"t\"");
    }
    absl::StrAppend(&events, ",\"args\":{\"detail\":", JsonString(event.detail), "}}");
  }
  return absl::StrCat("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", events, "]}");
}

}  // namespace tandem::router

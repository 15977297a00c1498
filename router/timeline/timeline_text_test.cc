// Both forms are read back with a parser of somebody else.
#include "router/timeline/timeline_text.h"

#include <string>

#include "boost/json.hpp"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

RequestTimeline::Snapshot Example() {
  RequestTimeline timeline({.id = "chatcmpl-\"1\"",
                            .http_id = "h",
                            .began_at = absl::Seconds(50),
                            .began_on = absl::FromUnixSeconds(1'700'000'000)});
  timeline.Add("queue", TimelinePlace::kRouter, 0, absl::Seconds(50), absl::Milliseconds(50'001));
  timeline.Add("chunk", TimelinePlace::kPrefill, 1, absl::Milliseconds(50'002), absl::Milliseconds(50'005),
               "pages 0 to 8");
  timeline.Add("first token", TimelinePlace::kRouter, 1, absl::Milliseconds(50'006), absl::Milliseconds(50'006));
  timeline.Waited(absl::Milliseconds(6));
  timeline.Ended({.http_status = 200,
                  .finish = "stop",
                  .num_prompt_tokens = 500,
                  .num_generated = 1,
                  .took = absl::Milliseconds(7)});
  return timeline.snapshot();
}

TEST(TimelineTextTest, OneRequestAsJson) {
  const json::object body = json::parse(TimelineJson(Example(), absl::Seconds(60))).as_object();
  EXPECT_EQ(body.at("id").as_string(), "chatcmpl-\"1\"");
  EXPECT_EQ(body.at("began").as_string(), "2023-11-14T22:13:20+00:00");
  EXPECT_EQ(body.at("took_ms").as_double(), 7.0);
  EXPECT_EQ(body.at("longest_wait_ms").as_double(), 6.0);
  EXPECT_EQ(body.at("status").as_int64(), 200);
  EXPECT_TRUE(body.at("traceparent").is_null() && body.at("error").is_null());
  const json::array& events = body.at("events").as_array();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].at("place").as_string(), "prefill");
  EXPECT_EQ(events[1].at("at_ms").as_double(), 2.0);
  EXPECT_EQ(events[1].at("took_ms").as_double(), 3.0);
  EXPECT_EQ(events[1].at("prompt").as_int64(), 1);
  EXPECT_EQ(events[1].at("detail").as_string(), "pages 0 to 8");
}

TEST(TimelineTextTest, ARequestThatRunsHasNoEndYet) {
  RequestTimeline timeline({.id = "a", .began_at = absl::Seconds(50)});
  const json::value body = json::parse(TimelineJson(timeline.snapshot(), absl::Seconds(60)));
  EXPECT_TRUE(body.at("status").is_null() && body.at("finish").is_null());
  EXPECT_EQ(body.at("took_ms").as_double(), 10'000.0);
}

// What https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU asks of each kind of event.
TEST(TimelineTextTest, OneRequestAsATrace) {
  const json::value trace = json::parse(TimelineTrace(Example(), absl::Seconds(60)));
  int num_spans = 0, num_instants = 0, num_names = 0;
  for (const json::value& event : trace.at("traceEvents").as_array()) {
    const json::string& kind = event.at("ph").as_string();
    EXPECT_TRUE(event.at("pid").is_int64() && event.at("name").is_string());
    if (kind == "M") {
      ++num_names;
      EXPECT_TRUE(event.at("args").at("name").is_string());
      continue;
    }
    EXPECT_TRUE(event.at("tid").is_int64());
    EXPECT_TRUE(event.at("ts").is_number());
    if (kind == "X") {
      ++num_spans;
      EXPECT_TRUE(event.at("dur").is_number());
    } else {
      ++num_instants;
      EXPECT_EQ(kind, "i");
    }
  }
  EXPECT_EQ(num_spans, 3) << "the request, its queue, a chunk";
  EXPECT_EQ(num_instants, 1);
  EXPECT_EQ(num_names, 1 + 2 * 4) << "the process, four places of each of two prompts";
}

TEST(TimelineTextTest, TheListHasALineOfEachAndNoEvents) {
  TimelineStore store(4);
  const auto ended = store.Begin({.id = "ended"});
  ended->Ended({.http_status = 503, .finish = "refused", .error = "no pair"});
  store.End(ended, absl::Seconds(1));
  store.Begin({.id = "runs"});
  const json::value body = json::parse(TimelineListJson(store, absl::Seconds(2)));
  ASSERT_EQ(body.at("running").as_array().size(), 1u);
  EXPECT_EQ(body.at("running").at(0).at("id").as_string(), "runs");
  EXPECT_EQ(body.at("recent").at(0).at("error").as_string(), "no pair");
  EXPECT_EQ(body.at("slow").as_array().size(), 1u);
  EXPECT_FALSE(body.at("recent").at(0).as_object().contains("events"));
}

}  // namespace
}  // namespace tandem::router

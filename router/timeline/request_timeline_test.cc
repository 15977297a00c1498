#include "router/timeline/request_timeline.h"

#include <string>

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

TEST(RequestTimelineTest, KeepsWhatHappenedInTheOrderInWhichItBegan) {
  RequestTimeline timeline({.id = "a", .http_id = "h", .began_at = absl::Seconds(100)});
  timeline.Add("later", TimelinePlace::kRouter, 0, absl::Seconds(103), absl::Seconds(103), "why");
  timeline.Add("earlier", TimelinePlace::kDecode, 1, absl::Seconds(101), absl::Seconds(102));
  timeline.Waited(absl::Seconds(3));
  timeline.Waited(absl::Seconds(2));
  timeline.Ended({.http_status = 200, .finish = "stop", .took = absl::Seconds(4)});
  const RequestTimeline::Snapshot snapshot = timeline.snapshot();
  ASSERT_EQ(snapshot.events.size(), 2u);
  EXPECT_STREQ(snapshot.events[0].name, "earlier");
  EXPECT_EQ(snapshot.events[0].at, absl::Seconds(1));
  EXPECT_EQ(snapshot.events[0].took, absl::Seconds(1));
  EXPECT_EQ(snapshot.events[0].prompt, 1);
  EXPECT_EQ(snapshot.events[1].took, absl::ZeroDuration());
  EXPECT_EQ(snapshot.events[1].detail, "why");
  EXPECT_EQ(snapshot.longest_wait, absl::Seconds(3));
  EXPECT_EQ(snapshot.end.http_status, 200);
  EXPECT_TRUE(timeline.IsNamed("a") && timeline.IsNamed("h"));
  timeline.Rename("b");
  EXPECT_TRUE(timeline.IsNamed("b") && !timeline.IsNamed("a"));
}

TEST(RequestTimelineTest, IsBoundedInEventsAndWords) {
  RequestTimeline timeline({.id = "a"});
  const std::string words(10'000, 'x');
  for (size_t i = 0; i < RequestTimeline::kEventsMax + 7; ++i) {
    timeline.Add("event", TimelinePlace::kRouter, 0, absl::ZeroDuration(), absl::ZeroDuration(), words);
  }
  timeline.Ended({.http_status = 500, .error = words});
  const RequestTimeline::Snapshot snapshot = timeline.snapshot();
  EXPECT_EQ(snapshot.events.size(), RequestTimeline::kEventsMax);
  EXPECT_EQ(snapshot.num_dropped, 7u);
  EXPECT_EQ(snapshot.events[0].detail.size(), RequestTimeline::kDetailBytesMax);
  EXPECT_EQ(snapshot.end.error.size(), RequestTimeline::kDetailBytesMax);
}

// The examples of https://www.w3.org/TR/trace-context/ and what it forbids.
TEST(RequestTimelineTest, TraceParentsAreThoseOfTheStandard) {
  EXPECT_TRUE(IsTraceParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
  EXPECT_TRUE(IsTraceParent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"));
  for (const char* text : {
           "",
           "00-00000000000000000000000000000000-b7ad6b7169203331-01",
           "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
           "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
           "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
           "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
       }) {
    EXPECT_FALSE(IsTraceParent(text)) << text;
  }
}

}  // namespace
}  // namespace tandem::router

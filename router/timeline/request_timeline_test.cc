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

}  // namespace
}  // namespace tandem::router

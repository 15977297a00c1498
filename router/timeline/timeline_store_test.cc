#include "router/timeline/timeline_store.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

using Timeline = TimelineStore::Timeline;

Timeline Finish(TimelineStore& store, const std::string& id, absl::Duration waited, absl::Duration ends_at) {
  Timeline timeline = store.Begin({.id = id});
  timeline->Waited(waited);
  store.End(timeline, ends_at);
  return timeline;
}

TEST(TimelineStoreTest, KeepsTheLastThatEndedAndFindsThemAndThoseThatRun) {
  TimelineStore store(2);
  const Timeline running = store.Begin({.id = "runs", .http_id = "outer"});
  const Timeline first = Finish(store, "first", absl::ZeroDuration(), absl::Seconds(1));
  const Timeline second = Finish(store, "second", absl::ZeroDuration(), absl::Seconds(2));
  const Timeline third = Finish(store, "third", absl::ZeroDuration(), absl::Seconds(3));
  EXPECT_EQ(store.Running(), std::vector<Timeline>{running});
  EXPECT_EQ(store.Recent(), (std::vector<Timeline>{third, second}));
  EXPECT_EQ(store.Find("runs"), running);
  EXPECT_EQ(store.Find("outer"), running);
  EXPECT_EQ(store.Find("third"), third);
  EXPECT_EQ(store.Find("nobody"), nullptr);
  const Timeline again = store.Begin({.id = "third"});
  EXPECT_EQ(store.Find("third"), again) << "the later one of a name";
}

TEST(TimelineStoreTest, KeepsThoseOfTheLastHourWhoseClientsWaitedLongest) {
  TimelineStore store(1);
  for (int i = 1; i <= 100; ++i) {
    Finish(store, absl::StrCat(i), absl::Milliseconds(i * 37 % 101), absl::Seconds(i));
  }
  const std::vector<Timeline> slow = store.Slow(absl::Seconds(100));
  ASSERT_EQ(slow.size(), TimelineStore::kSlowMax);
  for (size_t i = 0; i < slow.size(); ++i) {
    EXPECT_EQ(slow[i]->longest_wait(), absl::Milliseconds(100 - static_cast<int>(i)));
  }
  EXPECT_NE(store.Find(slow[5]->snapshot().origin.id), nullptr) << "though it is not among the recent";
  EXPECT_TRUE(store.Slow(absl::Seconds(101) + TimelineStore::kSlowWindow).empty());
  Finish(store, "late", absl::ZeroDuration(), absl::Hours(3));
  EXPECT_EQ(store.Slow(absl::Hours(3)).size(), 1u) << "what is old has made room";
}

TEST(TimelineStoreTest, KeepsNothingWhereNothingIsWanted) {
  TimelineStore store(0);
  EXPECT_EQ(store.Begin({.id = "a"}), nullptr);
  store.End(nullptr, absl::ZeroDuration());
  EXPECT_TRUE(store.Recent().empty() && store.Running().empty());
}

}  // namespace
}  // namespace tandem::router

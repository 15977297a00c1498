#include "kvtransfer/peer_lanes.h"

#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

constexpr absl::Duration kNow = absl::Seconds(100);
constexpr absl::Duration kLater = absl::Seconds(160);  // a quarantine later

PeerLanes TwoLanes() { return PeerLanes({}, {{.kind = "shm"}, {.kind = "tcp"}}); }

TEST(PeerLanesTest, PicksTheBestAndAnotherThanTheOneThatFailed) {
  const PeerLanes lanes = TwoLanes();
  EXPECT_EQ(lanes.Pick(kNow), 0);
  EXPECT_EQ(lanes.Pick(kNow, /*avoid=*/0), 1);
  EXPECT_EQ(lanes.Pick(kNow, /*avoid=*/1), 0);
  EXPECT_EQ(PeerLanes({}, {{.kind = "shm"}}).Pick(kNow, /*avoid=*/0), 0);
}

TEST(PeerLanesTest, WrongSumsFurtherApartThanTheWindowAreForgiven) {
  PeerLanes lanes = TwoLanes();
  EXPECT_FALSE(lanes.Strike(0, kNow));
  EXPECT_FALSE(lanes.Strike(0, kLater + absl::Milliseconds(1)));
  EXPECT_EQ(lanes.Pick(kLater + absl::Milliseconds(1)), 0);
  EXPECT_FALSE(lanes.Strike(1, kNow));
  EXPECT_TRUE(lanes.Strike(1, kLater));  // exactly the window
}

TEST(PeerLanesTest, AQuarantinedLaneIsUsedOnlyWhereThereIsNoOther) {
  PeerLanes lanes = TwoLanes();
  EXPECT_FALSE(lanes.Strike(0, kNow));
  EXPECT_TRUE(lanes.Strike(0, kNow));
  EXPECT_EQ(lanes.Pick(kNow), 1);
  EXPECT_EQ(lanes.Pick(kNow, /*avoid=*/1), 1);
  EXPECT_TRUE(lanes.HasUsable(kNow));
  EXPECT_FALSE(lanes.Strike(1, kNow));
  EXPECT_TRUE(lanes.Strike(1, kNow));
  EXPECT_FALSE(lanes.HasUsable(kNow));
  EXPECT_EQ(lanes.Pick(kNow), 0);
  EXPECT_TRUE(lanes.HasUsable(kLater));
  EXPECT_EQ(lanes.Pick(kLater), 0);
}

TEST(PeerLanesTest, TheWindowIsWhatTheLaneMovesInItsTimeWithinBounds) {
  const auto window = [](double rate) {
    return PeerLanes({.fetch_window = absl::Milliseconds(20), .window_bytes_min = 1000, .window_bytes_max = 5000},
                     {{.kind = "shm", .bytes_per_second = rate}})
        .WindowBytes(kNow);
  };
  EXPECT_EQ(window(0), 1000);
  EXPECT_EQ(window(100'000), 2000);
  EXPECT_EQ(window(1e12), 5000);
}

TEST(PeerLanesTest, MeasuresOverlappingFetchesByTheTimeTheyShare) {
  PeerLanes lanes = TwoLanes();
  // Four fetches of 1000 bytes started together, one done each 10 ms: 100,000 bytes a second, not 40,000.
  for (int i = 1; i <= 4; ++i) lanes.CountCompletion(0, 1000, kNow, kNow + i * absl::Milliseconds(10));
  EXPECT_NEAR(lanes.bytes_per_second(0), 100'000, 1);
  EXPECT_EQ(lanes.bytes_per_second(1), 0);
}

TEST(PeerLanesTest, NeitherIdleTimeNorFailuresCountAsSlowness) {
  PeerLanes lanes = TwoLanes();
  lanes.CountCompletion(0, 1000, kNow, kNow + absl::Milliseconds(10));
  lanes.CountCompletion(0, 1000, kLater, kLater + absl::Milliseconds(10));
  lanes.CountCompletion(0, 0, kLater + absl::Milliseconds(10), kLater + absl::Seconds(5));
  EXPECT_NEAR(lanes.bytes_per_second(0), 100'000, 1);
}

}  // namespace
}  // namespace tandem::kvtransfer

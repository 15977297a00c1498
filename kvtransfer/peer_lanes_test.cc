#include "kvtransfer/peer_lanes.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

constexpr absl::Duration kNow = absl::Seconds(100);
constexpr absl::Duration kLater = absl::Seconds(160);  // a quarantine later

PeerLanes::FetchTimes At(absl::Duration started, absl::Duration ended) {
  return {.started = started, .ended = ended, .heard = ended};
}

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
  for (int i = 1; i <= 4; ++i) lanes.CountCompletion(0, 1000, At(kNow, kNow + i * absl::Milliseconds(10)));
  EXPECT_NEAR(lanes.bytes_per_second(0), 100'000, 1);
  EXPECT_EQ(lanes.bytes_per_second(1), 0);
}

TEST(PeerLanesTest, NeitherIdleTimeNorFailuresCountAsSlowness) {
  PeerLanes lanes = TwoLanes();
  lanes.CountCompletion(0, 1000, At(kNow, kNow + absl::Milliseconds(10)));
  lanes.CountCompletion(0, 1000, At(kLater, kLater + absl::Milliseconds(10)));
  lanes.CountCompletion(0, 0, At(kLater + absl::Milliseconds(10), kLater + absl::Seconds(5)));
  EXPECT_NEAR(lanes.bytes_per_second(0), 100'000, 1);
}

// The engine hears of completions once in a step. A lane that could move a gigabyte a second once came down to the
// least window in every step of a large model: it was measured by the steps, and its window followed what was measured.
TEST(PeerLanesTest, StepsOfTheEngineSlowNoLane) {
  constexpr double kRate = 1e9;
  constexpr int64_t kPiece = 10'000;
  for (const absl::Duration step : {absl::Milliseconds(1), absl::Milliseconds(45), absl::Milliseconds(120)}) {
    PeerLanes lanes({}, {{.kind = "shm", .bytes_per_second = 1e7}});  // a first measurement that is far too low
    absl::Duration now = kNow, lane_free = kNow;
    int64_t moved = 0;
    constexpr int kNumSteps = 300, kWarmUp = 150;
    for (int i = 0; i < kNumSteps; ++i) {
      const int64_t num_pieces = lanes.WindowBytes(now) / kPiece;
      const absl::Duration started = now;
      now += step;
      // All that the window allowed is asked for at once; what the lane does not manage within the step comes in later
      // ones and is left out here.
      absl::Duration ended = std::max(lane_free, started);
      for (int64_t piece = 0; piece < num_pieces; ++piece) {
        ended += absl::Seconds(kPiece / kRate);
        if (ended > now) break;
        lanes.CountCompletion(0, kPiece, {.started = started, .ended = ended, .heard = now});
        if (i >= kWarmUp) moved += kPiece;
      }
      lane_free = std::min(ended, now);
    }
    EXPECT_GT(static_cast<double>(moved), 0.9 * kRate * absl::ToDoubleSeconds(step * (kNumSteps - kWarmUp))) << step;
  }
}

}  // namespace
}  // namespace tandem::kvtransfer

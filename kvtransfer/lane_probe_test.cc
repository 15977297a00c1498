// Proves: the rate is bytes over the clock's time of the best try; a lane that fails, hangs or crawls is refused, and
// nothing is left outstanding.
#include "kvtransfer/lane_probe.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

// Takes a scripted time of the test's clock for each fetch; infinite: never ends by itself.
class ScriptedLane final : public FetchLane {
 public:
  ScriptedLane(base::FakeClock& clock, std::vector<absl::Duration> times) : clock_(clock), times_(std::move(times)) {}
  std::string_view kind() const override { return "scripted"; }
  void Fetch(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) override {
    EXPECT_EQ(epoch, kWarmUpEpoch);
    runs_ = std::move(runs);
    const absl::Duration time = times_.at(num_fetches_++);
    if (time == absl::InfiniteDuration()) {
      hanging_ = std::move(done);
      return;
    }
    clock_.Advance(time);
    done(status_);
  }
  void Cancel(uint64_t) override {
    if (hanging_) std::exchange(hanging_, nullptr)(absl::CancelledError("cancelled"));
  }
  void Close() override {}

  base::FakeClock& clock_;
  const std::vector<absl::Duration> times_;
  size_t num_fetches_ = 0;
  absl::Status status_;
  std::vector<ByteRun> runs_;
  std::function<void(absl::Status)> hanging_;
};

TEST(LaneProbeTest, MeasuresTheBestTryByTheClock) {
  base::FakeClock clock;
  ScriptedLane lane(clock, {absl::Milliseconds(100), absl::Milliseconds(2), absl::Milliseconds(4)});
  const auto rate = MeasureLane(lane, {.target_offset = 77, .num_bytes = 1'000'000}, clock);
  ASSERT_TRUE(rate.ok());
  EXPECT_DOUBLE_EQ(*rate, 500e6);
  EXPECT_EQ(lane.runs_, (std::vector<ByteRun>{{0, 77, 1'000'000}}));
}

TEST(LaneProbeTest, ReturnsTheLanesError) {
  base::FakeClock clock;
  ScriptedLane lane(clock, {absl::Milliseconds(1)});
  lane.status_ = absl::UnavailableError("gone");
  EXPECT_TRUE(absl::IsUnavailable(MeasureLane(lane, {.num_bytes = 1}, clock).status()));
}

TEST(LaneProbeTest, GivesUpOnALaneThatHangsAndLeavesNothingOutstanding) {
  base::FakeClock clock;
  ScriptedLane lane(clock, {absl::Milliseconds(1), absl::InfiniteDuration()});
  const auto rate = MeasureLane(lane, {.num_bytes = 8, .limit = absl::Milliseconds(1)}, clock);
  EXPECT_EQ(rate.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(rate.status().message(), "warm-up of 8 bytes took longer than 1ms");
  EXPECT_FALSE(lane.hanging_);
}

TEST(LaneProbeTest, RefusesAProbeThatNoSourceAllows) {
  base::FakeClock clock;
  ScriptedLane lane(clock, {});
  EXPECT_EQ(MeasureLane(lane, {.num_bytes = kWarmUpBytesMax + 1}, clock).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MeasureLane(lane, {.num_bytes = 0}, clock).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(LaneProbeTest, OrdersByRateWhereItDecidesAndAsAskedWhereItDoesNot) {
  using Order = std::vector<size_t>;
  EXPECT_EQ(OrderByRate({}), Order{});
  EXPECT_EQ(OrderByRate(std::vector<double>{5, 5}), (Order{0, 1}));
  EXPECT_EQ(OrderByRate(std::vector<double>{5, 9}), (Order{0, 1}));
  EXPECT_EQ(OrderByRate(std::vector<double>{5, 11}), (Order{1, 0}));
  EXPECT_EQ(OrderByRate(std::vector<double>{1, 100, 60}), (Order{1, 2, 0}));
  EXPECT_EQ(OrderByRate(std::vector<double>{3, 4, 100}), (Order{2, 0, 1}));
}

TEST(LaneProbeTest, RefusesALaneBelowATenthOfItsKind) {
  for (const std::string_view kind : {"ucx_shm", "ucx_am", "loopback"}) {
    EXPECT_TRUE(CheckRate(kind, ExpectedRate(kind) / 9).ok());
    EXPECT_TRUE(absl::IsUnavailable(CheckRate(kind, ExpectedRate(kind) / 11)));
  }
  EXPECT_EQ(CheckRate("ucx_am", 5e6).message(), "ucx_am lane gives 5 MB/s, at least 20 MB/s are expected");
  EXPECT_TRUE(CheckRate("unheard_of", 0).ok());
}

}  // namespace
}  // namespace tandem::kvtransfer

#include "base/clock.h"

#include <gtest/gtest.h>

namespace tandem::base {
namespace {

TEST(ClockTest, RealTimeNeverGoesBack) {
  absl::Duration last = RealClock().Now();
  for (int i = 0; i < 1000; ++i) {
    const absl::Duration now = RealClock().Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(ClockTest, FakeTimeMovesOnlyWhenTold) {
  FakeClock clock;
  const absl::Duration start = clock.Now();
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(absl::Milliseconds(250));
  EXPECT_EQ(clock.Now() - start, absl::Milliseconds(250));
  EXPECT_EQ(clock.WallTime() - absl::UnixEpoch(), clock.Now());
}

}  // namespace
}  // namespace tandem::base

// Proves what counts as a loop's own lost time.
#include "base/own_stall.h"

#include "gtest/gtest.h"

namespace tandem::base {
namespace {

TEST(OwnStallTest, TurnsUpToTheBoundLoseNothing) {
  OwnStall stall(absl::Milliseconds(250));
  absl::Duration now = absl::Hours(5);
  EXPECT_EQ(stall.Observe(now), absl::ZeroDuration()) << "there was no turn before the first";
  EXPECT_EQ(stall.Observe(now += absl::Milliseconds(250)), absl::ZeroDuration());
  EXPECT_EQ(stall.Observe(now), absl::ZeroDuration());
}

TEST(OwnStallTest, ALongerTurnIsLostWholeAndOnce) {
  OwnStall stall(absl::Milliseconds(250));
  absl::Duration now = absl::Hours(5);
  stall.Observe(now);
  EXPECT_EQ(stall.Observe(now += absl::Milliseconds(251)), absl::Milliseconds(251));
  EXPECT_EQ(stall.Observe(now += absl::Milliseconds(50)), absl::ZeroDuration());
}

}  // namespace
}  // namespace tandem::base

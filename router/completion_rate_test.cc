// Proves the forecast by arithmetic: so many completions in so many seconds, so long for the next.
#include "router/completion_rate.h"

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

TEST(CompletionRateTest, ForecastsFromTheWindowsRate) {
  CompletionRate rate;
  rate.Restart(absl::Seconds(100));
  for (int i = 0; i < 40; ++i) rate.Count(absl::Seconds(100) + i * absl::Milliseconds(250));  // 4 a second for 10 s
  EXPECT_EQ(rate.TimeFor(1, absl::Seconds(110)), absl::Milliseconds(250));
  EXPECT_EQ(rate.TimeFor(12, absl::Seconds(110)), absl::Seconds(3));
}

TEST(CompletionRateTest, WhereNothingHasEndedTheBusyTimeIsTheForecast) {
  CompletionRate rate;
  rate.Restart(absl::Seconds(5));
  EXPECT_EQ(rate.TimeFor(1, absl::Seconds(12)), absl::Seconds(7));
  EXPECT_EQ(rate.TimeFor(3, absl::Seconds(12)), absl::Seconds(21));
}

TEST(CompletionRateTest, ForgetsWhatIsOlderThanTheWindow) {
  CompletionRate rate;
  rate.Restart(absl::Seconds(0));
  for (int i = 0; i < 1000; ++i) rate.Count(absl::Seconds(1));
  const int window = CompletionRate::kWindowSeconds;
  for (int second = 100; second < 100 + window; ++second) rate.Count(absl::Seconds(second));
  const absl::Duration now = absl::Seconds(100 + window);  // the 29 whole seconds before it, one completion in each
  EXPECT_EQ(rate.TimeFor(10, now), absl::Seconds(10));
}

TEST(CompletionRateTest, ABusyPeriodStartsAfresh) {
  CompletionRate rate;
  rate.Restart(absl::Seconds(0));
  for (int i = 0; i < 1000; ++i) rate.Count(absl::Seconds(1));
  rate.Restart(absl::Seconds(4));
  rate.Count(absl::Seconds(5));
  EXPECT_EQ(rate.TimeFor(1, absl::Seconds(6)), absl::Seconds(2));
}

}  // namespace
}  // namespace tandem::router

#include "base/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::base {
namespace {

using ::testing::HasSubstr;

TEST(MetricsTest, EverySeriesCarriesItsRole) {
  Metrics metrics("decode");
  metrics.AddCounter("tandem_tokens_total", "Tokens.").Increment(3);
  metrics.AddGauge("tandem_pages", "Pages.", {{"state", "free"}}).Set(7);
  metrics.AddGauge("tandem_pages", "Pages.", {{"state", "used"}}).Set(1);
  metrics.AddHistogram("tandem_step_seconds", "Steps.", {0.1, 1}).Observe(0.5);
  const std::string text = metrics.Expose();
  EXPECT_THAT(text, HasSubstr("# HELP tandem_tokens_total Tokens.\n# TYPE tandem_tokens_total counter\n"));
  EXPECT_THAT(text, HasSubstr("tandem_tokens_total{role=\"decode\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("tandem_pages{role=\"decode\",state=\"free\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("tandem_pages{role=\"decode\",state=\"used\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("tandem_step_seconds_bucket{role=\"decode\",le=\"1\"} 1\n"));
}

TEST(MetricsTest, LatencyBucketsResolveHalfAMillisecond) {
  EXPECT_DOUBLE_EQ(LatencyBuckets().front(), 0.0005);
  EXPECT_GT(LatencyBuckets().back(), 120);
}

}  // namespace
}  // namespace tandem::base

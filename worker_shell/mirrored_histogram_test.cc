// Proves that what a histogram shows is what was counted, however often it is told, and that its parts add up.
#include "worker_shell/mirrored_histogram.h"

#include <vector>

#include "gtest/gtest.h"

namespace tandem::worker_shell {
namespace {

TEST(MirroredHistogramTest, ShowsCountsAndSumOfAllThatWasTold) {
  prometheus::Histogram histogram({1, 2, 3});
  MirroredHistogram mirror(histogram, 3);
  mirror.Set({0, 0, 0}, 0);
  EXPECT_EQ(histogram.Collect().histogram.sample_count, 0u);
  mirror.Set({5, 0, 1}, 8);
  mirror.Set({5, 0, 1}, 8);
  mirror.Set({6, 2, 1, 99}, 13.5);  // what lies beyond its bounds is not its own
  const prometheus::ClientMetric::Histogram shown = histogram.Collect().histogram;
  EXPECT_EQ(shown.sample_count, 9u);
  EXPECT_EQ(shown.sample_sum, 13.5);
  std::vector<uint64_t> cumulative;
  for (const auto& bucket : shown.bucket) cumulative.push_back(bucket.cumulative_count);
  EXPECT_EQ(cumulative, (std::vector<uint64_t>{6, 8, 9, 9}));
}

}  // namespace
}  // namespace tandem::worker_shell

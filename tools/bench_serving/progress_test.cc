// Proves the words of a line of progress.
#include "tools/bench_serving/progress.h"

#include <gtest/gtest.h>

namespace tandem::bench_serving {
namespace {

TEST(ProgressLineTest, SaysWhereTheRunIs) {
  EXPECT_EQ(
      ProgressLine({.num_sent = 186, .num_ended = 122, .num_failed = 2, .num_tokens = 54'300}, 1000, absl::Seconds(30)),
      "30 s: 120 of 1000 answered, 64 under way, 2 failed, 1810 tokens/s, about 216 s to go");
  EXPECT_EQ(ProgressLine({}, 10, absl::ZeroDuration()), "0 s: 0 of 10 answered, 0 under way, 0 failed");
}

}  // namespace
}  // namespace tandem::bench_serving

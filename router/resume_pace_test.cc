// Proves that in no window more go than the burst and the rate allow, that nobody waits without need, and the order.
#include "router/resume_pace.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::router {
namespace {

TEST(ResumePaceTest, ABurstGoesAtOnceAndTheRestAtTheRate) {
  ResumePace pace(10);
  const absl::Duration now = absl::Seconds(100);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(pace.Reserve(now), now) << i;
  for (int i = 1; i <= 25; ++i) EXPECT_EQ(pace.Reserve(now), now + i * absl::Milliseconds(100)) << i;
}

TEST(ResumePaceTest, AQuietSecondGivesTheBurstBack) {
  ResumePace pace(10);
  absl::Duration now = absl::Seconds(100);
  for (int i = 0; i < 10; ++i) pace.Reserve(now);
  now += absl::Seconds(1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(pace.Reserve(now), now) << i;
  EXPECT_GT(pace.Reserve(now), now);
}

TEST(ResumePaceTest, NoWindowHoldsMoreThanBurstAndRateAndTheOrderStays) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const int per_second = 1 + static_cast<int>(random() % 50);
    ResumePace pace(per_second);
    absl::Duration now = absl::Seconds(1000);
    std::vector<absl::Duration> went;
    for (int i = 0; i < 400; ++i) {
      now += absl::Milliseconds(random() % 5 == 0 ? random() % 3000 : random() % 10);
      went.push_back(pace.Reserve(now));
      EXPECT_GE(went.back(), now);
      EXPECT_GE(went[i], went[std::max(i - 1, 0)]);
    }
    for (size_t first = 0; first < went.size(); ++first) {
      for (size_t last = first; last < went.size(); ++last) {
        const double seconds = absl::ToDoubleSeconds(went[last] - went[first]);
        ASSERT_LE(last - first + 1, per_second + seconds * per_second + 1 + 1e-6) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::router

// Proves how device pages go from hand to hand: against sums over random plans nothing is lost or made, nobody older
// gives anything up, and nobody leaves a buffer in vain.
#include "decode_worker/hisparse/device_pages.h"

#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(DevicePagesTest, GrowWithASequenceUpToTheBuffersSize) {
  EXPECT_EQ(DevicePagesFor(1, 4), 2);
  EXPECT_EQ(DevicePagesFor(64, 4), 2);
  EXPECT_EQ(DevicePagesFor(65, 4), 3);
  EXPECT_EQ(DevicePagesFor(256, 4), 5);
  EXPECT_EQ(DevicePagesFor(100'000, 4), 5);
  EXPECT_EQ(DevicePagesFor(100'000, 0), 0) << "HiSparse is off";
}

TEST(DevicePagesTest, TheYoungestLeaveTheirBuffersForTheOldest) {
  DevicePagePlan plan(1, {2, 3, 0, 2});
  EXPECT_TRUE(plan.Take(0, 1, 4));
  EXPECT_THAT(plan.swapped_out(), IsEmpty());
  EXPECT_TRUE(plan.Take(0, 3, 4));
  EXPECT_THAT(plan.swapped_out(), ElementsAre(3, 1));
  EXPECT_EQ(plan.held(0), 6);
  EXPECT_EQ(plan.held(1), 0);
  EXPECT_FALSE(plan.Take(1, 3, 4)) << "two pages are left";
  EXPECT_TRUE(plan.Take(3, 2, 4));
}

TEST(DevicePagesTest, NobodyLeavesABufferInVain) {
  DevicePagePlan plan(1, {2, 3, 2});
  EXPECT_FALSE(plan.Take(1, 4, 3));
  EXPECT_FALSE(plan.Take(2, 2, 3)) << "there is nobody younger";
  EXPECT_THAT(plan.swapped_out(), IsEmpty());
  EXPECT_EQ(plan.held(2), 2);
}

TEST(DevicePagesTest, PagesAreNeitherLostNorMade) {
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 2000; ++repeat) {
    std::vector<int> held(1 + random() % 8);
    for (int& pages : held) pages = random() % 5;
    const int64_t num_free = random() % 5;
    const int64_t total = num_free + std::accumulate(held.begin(), held.end(), int64_t{0});
    DevicePagePlan plan(num_free, held);
    const int end = static_cast<int>(held.size());
    for (int i = 0; i < end; ++i) {
      const std::vector<int> before = [&] {
        std::vector<int> now;
        for (int j = 0; j < end; ++j) now.push_back(plan.held(j));
        return now;
      }();
      const int wanted = random() % 6;
      const int64_t within_reach =
          total - std::accumulate(before.begin(), before.begin() + i + 1, int64_t{0});  // free, or of younger ones
      EXPECT_EQ(plan.Take(i, wanted, end), wanted <= within_reach);
      int64_t sum = 0;
      for (int j = 0; j < end; ++j) {
        sum += plan.held(j);
        ASSERT_TRUE(j >= i || plan.held(j) == before[j]) << "an older one gave something up";
      }
      EXPECT_LE(sum, total);
      EXPECT_EQ(plan.held(i), before[i] + (wanted <= within_reach ? wanted : 0));
    }
  }
}

}  // namespace
}  // namespace tandem::decode

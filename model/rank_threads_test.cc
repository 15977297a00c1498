// Proves that every rank works once for each run, all at the same time, and that the threads end.
#include "model/rank_threads.h"

#include <atomic>

#include "absl/synchronization/barrier.h"
#include "gtest/gtest.h"

namespace tandem::model {
namespace {

TEST(RankThreadsTest, EveryRankWorksOnceInEachRunAndAllAtTheSameTime) {
  for (const int num_ranks : {1, 2, 5}) {
    RankThreads threads(num_ranks);
    std::vector<std::atomic<int>> calls(num_ranks);
    for (int run = 1; run <= 100; ++run) {
      // Nobody returns before all are there.
      auto* all_here = new absl::Barrier(num_ranks);
      threads.Run([&](int rank) {
        ++calls[rank];
        if (all_here->Block()) delete all_here;
      });
      for (const auto& count : calls) EXPECT_EQ(count, run);
    }
  }
}

TEST(RankThreadsTest, TheFirstRanksThreadIsTheCallers) {
  RankThreads threads(3);
  std::vector<std::thread::id> ids(3);
  threads.Run([&](int rank) { ids[rank] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_NE(ids[1], ids[0]);
  EXPECT_NE(ids[1], ids[2]);
  const std::vector<std::thread::id> first = ids;
  threads.Run([&](int rank) { ids[rank] = std::this_thread::get_id(); });
  EXPECT_EQ(ids, first);
}

TEST(RankThreadsTest, EndsWithoutARun) { RankThreads threads(4); }

}  // namespace
}  // namespace tandem::model

// Proves that every task runs once and is over when Run returns, for many short loops in a row.
#include "kernels/thread_pool.h"

#include <numeric>

#include "gtest/gtest.h"

namespace tandem::kernels {
namespace {

TEST(ThreadPoolTest, RunsEveryTaskOnceBeforeItReturns) {
  for (int num_threads : {1, 2, 5}) {
    ThreadPool threads(num_threads);
    EXPECT_EQ(threads.num_threads(), num_threads);
    std::vector<int> counts;  // plain ints: a task that runs twice or late is a race that the sanitizer sees
    for (int64_t num_tasks = 0; num_tasks < 300; ++num_tasks) {
      counts.assign(static_cast<size_t>(num_tasks), 0);
      threads.Run(num_tasks, [&](int64_t i) { ++counts[static_cast<size_t>(i)]; });
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), num_tasks);
      for (int count : counts) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPoolTest, SpreadsWorkOverItsThreads) {
  ThreadPool threads(3);
  // Every task waits until three threads are inside: the loop ends only if the helpers work along.
  std::atomic<int> inside = 0;
  threads.Run(3, [&](int64_t) {
    inside.fetch_add(1);
    while (inside.load() < 3) std::this_thread::yield();
  });
  EXPECT_EQ(inside.load(), 3);
}

TEST(ThreadPoolTest, EndsWhileHelpersSleepOrLook) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool threads(4);
    if (round % 2 == 0) threads.Run(2, [](int64_t) {});
  }
}

TEST(RunTasksTest, TheCallerDoesAllWithoutAPool) {
  std::vector<int64_t> order;
  RunTasks(nullptr, 4, [&](int64_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST(NumUsableProcessorsTest, IsPositive) { EXPECT_GE(NumUsableProcessors(), 1); }

}  // namespace
}  // namespace tandem::kernels

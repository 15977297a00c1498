// Proves the chunk scheduler's promises as properties over random queues: budget, progress, fairness in both
// directions. Does not prove that chunking leaves the numbers alone: that is the model's test.
#include "prefill_worker/chunk_scheduler.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::prefill {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct RandomQueue {
  std::vector<int64_t> left;
  ChunkLimits limits;
};

RandomQueue DrawQueue(std::mt19937& rng) {
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  RandomQueue queue;
  queue.limits = {.num_tokens_max = draw(1, 600), .num_chunks_max = draw(1, 12)};
  const int num_requests = draw(0, 20);
  for (int i = 0; i < num_requests; ++i) {
    queue.left.push_back(draw(0, 3) == 0 ? draw(0, 4000) : draw(0, 80));
  }
  return queue;
}

TEST(ChunkSchedulerTest, PlansNothingWhereNothingIsLeft) {
  const ChunkScheduler scheduler({.num_tokens_max = 64, .num_chunks_max = 4});
  EXPECT_THAT(scheduler.Plan({}), IsEmpty());
  EXPECT_THAT(scheduler.Plan({0, 0}), IsEmpty());
}

TEST(ChunkSchedulerTest, OneLongPromptTakesTheWholeStep) {
  const ChunkScheduler scheduler({.num_tokens_max = 100, .num_chunks_max = 4});
  EXPECT_THAT(scheduler.Plan({1000}), ElementsAre(PlannedChunk{0, 100}));
}

TEST(ChunkSchedulerTest, AShortPromptBehindALongOneIsComputedInTheSameStep) {
  const ChunkScheduler scheduler({.num_tokens_max = 100, .num_chunks_max = 4});
  EXPECT_THAT(scheduler.Plan({100'000, 30}), ElementsAre(PlannedChunk{0, 70}, PlannedChunk{1, 30}));
}

TEST(ChunkSchedulerTest, EqualPromptsAreServedInOrderOfArrival) {
  const ChunkScheduler scheduler({.num_tokens_max = 100, .num_chunks_max = 4});
  EXPECT_THAT(scheduler.Plan({300, 300, 300}), ElementsAre(PlannedChunk{0, 100}));
}

TEST(ChunkSchedulerTest, ALongOldestPromptKeepsHalfOfTheStepUnderAStreamOfShortOnes) {
  const ChunkScheduler scheduler({.num_tokens_max = 100, .num_chunks_max = 64});
  int64_t left = 1000;
  int num_steps = 0;
  for (; left > 0; ++num_steps) {
    std::vector<int64_t> queue = {left};
    queue.resize(30, 10);  // new short prompts all the time
    left -= scheduler.Plan(queue).front().num_tokens;
  }
  EXPECT_EQ(num_steps, 20);
}

TEST(ChunkSchedulerTest, KeepsBudgetsAndWastesNothing) {
  std::mt19937 rng(20261130);
  for (int round = 0; round < 5000; ++round) {
    const RandomQueue queue = DrawQueue(rng);
    const auto plan = ChunkScheduler(queue.limits).Plan(queue.left);
    int64_t planned = 0;
    int previous_index = -1;
    for (const PlannedChunk& chunk : plan) {
      EXPECT_GT(chunk.request_index, previous_index);
      previous_index = chunk.request_index;
      EXPECT_GE(chunk.num_tokens, 1);
      EXPECT_LE(chunk.num_tokens, queue.left[chunk.request_index]);
      planned += chunk.num_tokens;
    }
    EXPECT_LE(planned, queue.limits.num_tokens_max);
    EXPECT_LE(static_cast<int>(plan.size()), queue.limits.num_chunks_max);
    const int64_t total = std::accumulate(queue.left.begin(), queue.left.end(), int64_t{0});
    if (static_cast<int>(plan.size()) < queue.limits.num_chunks_max) {
      EXPECT_EQ(planned, std::min<int64_t>(total, queue.limits.num_tokens_max));
    } else {
      EXPECT_GT(planned, 0);
    }
  }
}

TEST(ChunkSchedulerTest, TheOldestAlwaysGetsHalfOfTheStep) {
  std::mt19937 rng(7);
  for (int round = 0; round < 5000; ++round) {
    const RandomQueue queue = DrawQueue(rng);
    const auto plan = ChunkScheduler(queue.limits).Plan(queue.left);
    const auto oldest = std::find_if(queue.left.begin(), queue.left.end(), [](int64_t left) { return left > 0; });
    if (oldest == queue.left.end()) continue;
    ASSERT_FALSE(plan.empty());
    ASSERT_EQ(plan.front().request_index, oldest - queue.left.begin());
    EXPECT_GE(plan.front().num_tokens, std::min<int64_t>(*oldest, (queue.limits.num_tokens_max + 1) / 2));
  }
}

// The bound that matters to a client: a prompt waits for others as if none of them were longer than itself, at half the
// budget.
TEST(ChunkSchedulerTest, APromptNeverWaitsForTheLengthOfLongerOnes) {
  std::mt19937 rng(11);
  for (int round = 0; round < 300; ++round) {
    RandomQueue queue = DrawQueue(rng);
    queue.limits.num_tokens_max = std::max(queue.limits.num_tokens_max, 2);
    queue.limits.num_chunks_max = 64;
    const std::vector<int64_t> at_start = queue.left;
    std::vector<int> steps_to_finish(queue.left.size(), 0);
    const ChunkScheduler scheduler(queue.limits);
    for (int step = 1;; ++step) {
      const auto plan = scheduler.Plan(queue.left);
      if (plan.empty()) break;
      for (const PlannedChunk& chunk : plan) {
        queue.left[chunk.request_index] -= chunk.num_tokens;
        if (queue.left[chunk.request_index] == 0) steps_to_finish[chunk.request_index] = step;
      }
    }
    for (size_t i = 0; i < at_start.size(); ++i) {
      int64_t ahead_of_it = 0;
      for (const int64_t left : at_start) ahead_of_it += std::min(left, at_start[i]);
      const int64_t half = queue.limits.num_tokens_max / 2;
      EXPECT_LE(steps_to_finish[i], (ahead_of_it + half - 1) / half) << "request " << i << " round " << round;
    }
  }
}

}  // namespace
}  // namespace tandem::prefill

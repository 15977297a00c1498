// Proves the limit of running sequences against the scheduler itself: with it, as many of the shortest requests, or
// choices of one, are let in as without any limit, so nobody is turned away that memory has room for; and that rows
// stay within their part.
#include "decode_worker/running_limit.h"

#include <algorithm>
#include <random>
#include <vector>

#include "decode_worker/batch_scheduler.h"
#include "decode_worker/hisparse/device_pages.h"
#include "decode_worker/page_sharing.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

// Requests of one token each, let in one after the other until nobody is any more.
int AdmittedWithoutLimit(const RunningMemory& memory) {
  const BatchScheduler scheduler(
      {.num_sequences_max = 1 << 20, .num_rows_max = 1 << 20, .num_kept_pages_max = memory.num_kept_pages_max});
  const int num_device_pages = DevicePagesFor(65, memory.num_kept_pages_max);
  const std::vector<Reservation> one = {{.num_sequences = 1, .num_pages = 1, .num_device_pages = num_device_pages}};
  int num_holders = 0;
  while (scheduler.PlanAdmission({.wanted = one,
                                  .num_holders = num_holders,
                                  .num_pages_free = memory.num_pages - num_holders,
                                  .num_device_pages = memory.num_device_pages,
                                  .num_device_pages_promised = int64_t{num_holders} * num_device_pages}) == 1) {
    ++num_holders;
  }
  return num_holders;
}

TEST(RunningLimitTest, IsWhatAdmissionCouldEverLetIn) {
  std::mt19937 rng(3);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  for (int round = 0; round < 500; ++round) {
    RunningMemory memory{.num_pages = draw(1, 600), .kv_bytes = int64_t{1} << 40, .vocab_size = 1000};
    if (draw(0, 1) == 0) {
      memory.num_kept_pages_max = draw(1, 6);
      memory.num_device_pages = draw(1 + memory.num_kept_pages_max, 200);
    }
    // Beside many requests, one that is alone with as many choices as the pool has pages for, 128 at most.
    const std::vector<int64_t> choices(128, 1);
    const int of_one = PlanReservation(1, choices, 128, memory.num_pages).num_sequences;
    EXPECT_EQ(PlanRunningLimit(memory, 0).num_sequences, std::max(AdmittedWithoutLimit(memory), of_one))
        << "round " << round;
  }
}

TEST(RunningLimitTest, LogitsOfAStepTakeASixteenthOfTheCacheOr64MebibytesAtMost) {
  EXPECT_EQ(PlanRunningLimit({.num_pages = 4096, .kv_bytes = 1'600'000'000, .vocab_size = 25'000, .num_drafts = 3}, 0)
                .num_sequences,
            250);
  EXPECT_EQ(
      PlanRunningLimit({.num_pages = 4096, .kv_bytes = 1, .vocab_size = 1 << 17, .num_drafts = 3}, 0).num_sequences,
      32);
  std::mt19937 rng(4);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  for (int round = 0; round < 500; ++round) {
    const RunningMemory drawn{.num_pages = draw(1, 100'000),
                              .kv_bytes = int64_t{draw(1, 1'000'000)} * 10'000,
                              .vocab_size = draw(1, 200'000),
                              .num_drafts = draw(0, 15)};
    const int64_t allowed = std::max(drawn.kv_bytes / 16, int64_t{64} << 20);
    const int64_t row_bytes = int64_t{drawn.vocab_size} * 4 * (1 + drawn.num_drafts);
    const RunningLimit limit = PlanRunningLimit(drawn, 0);
    EXPECT_LE(limit.num_sequences * row_bytes, allowed);
    if (limit.num_sequences < std::min<int64_t>(std::max(limit.by_pages, limit.by_choices), kRunningSequencesMax)) {
      EXPECT_GT((limit.num_sequences + 1) * row_bytes, allowed) << "one more would fit";
    }
  }
}

TEST(RunningLimitTest, OneRunsInTheSmallestPoolAndNoMoreThanTheFieldAllowsInTheLargest) {
  EXPECT_EQ(PlanRunningLimit({.num_pages = 1, .kv_bytes = 1, .vocab_size = 1 << 24, .num_drafts = 15}, 0).num_sequences,
            1);
  EXPECT_EQ(PlanRunningLimit({.num_pages = 1 << 30, .kv_bytes = int64_t{1} << 60, .vocab_size = 2}, 0).num_sequences,
            kRunningSequencesMax);
}

TEST(RunningLimitTest, WhatIsSetIsTakenAndTheFormulaIsShownBesideIt) {
  const RunningMemory memory{.num_pages = 256,
                             .num_device_pages = 90,
                             .num_kept_pages_max = 4,
                             .kv_bytes = 77'463'552,
                             .vocab_size = 2560,
                             .num_drafts = 3};
  EXPECT_EQ(
      Describe(PlanRunningLimit(memory, 0), memory),
      "128 sequences hold pages at a time, by memory: 128 by 256 KV pages (two for each), 30 by 90 device pages (3 "
      "for each), at least 128 for the choices of one request, at most 1638 by rows (67108864 bytes; each has 4 "
      "rows with 10240 bytes of logits)");
  const RunningLimit set = PlanRunningLimit(memory, 200);
  EXPECT_EQ(set.num_sequences, 200);
  EXPECT_EQ(set.by_pages, 128);
  EXPECT_EQ(Describe(set, memory).substr(0, 100),
            "200 sequences hold pages at a time, as process.max_running_requests says; memory would give: 128 by ");
}

}  // namespace
}  // namespace tandem::decode

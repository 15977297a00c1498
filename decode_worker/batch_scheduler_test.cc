// Proves the batch scheduler's promises: pages and rows are never overspent, only the youngest are retracted, the
// oldest always moves, and whole random workloads run to their end in a pool that holds barely one of them.
#include "decode_worker/batch_scheduler.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/kv_layout.h"

namespace tandem::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

SequenceView Running(int64_t num_tokens) {
  return {.is_runnable = true,
          .num_rows_pending = 1,
          .num_tokens = num_tokens,
          .num_pages = kvcache::PagesForTokens(num_tokens)};
}
SequenceView Transferring(int num_pages) { return {.is_runnable = false, .num_pages = num_pages}; }

const BatchScheduler& Scheduler() {
  static const BatchScheduler scheduler({.num_sequences_max = 8, .num_rows_max = 16});
  return scheduler;
}

TEST(BatchSchedulerTest, EveryRunningSequenceIsInEveryStep) {
  const std::vector<SequenceView> sequences = {Running(10), Running(64), Transferring(3), Running(65)};
  const StepPlan plan = Scheduler().PlanStep({.sequences = sequences, .num_pages_free = 5});
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 1, 0}, PlannedRows{1, 1, 1}, PlannedRows{3, 1, 0}));
  EXPECT_THAT(plan.retracted, IsEmpty());
  EXPECT_EQ(plan.num_sitting_out, 0);
}

TEST(BatchSchedulerTest, PageFamineRetractsTheYoungest) {
  const std::vector<SequenceView> sequences = {Running(64), Running(70), Running(20)};
  const StepPlan plan = Scheduler().PlanStep({.sequences = sequences, .num_pages_free = 0});
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 1, 1}, PlannedRows{1, 1, 0}));
  EXPECT_THAT(plan.retracted, ElementsAre(2));
}

TEST(BatchSchedulerTest, AYoungestTransferIsRetractedAndTheGrowingSequenceWaitsForItsPages) {
  const std::vector<SequenceView> sequences = {Running(64), Running(70), Transferring(4)};
  const StepPlan plan = Scheduler().PlanStep({.sequences = sequences, .num_pages_free = 0});
  EXPECT_THAT(plan.retracted, ElementsAre(2));
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{1, 1, 0}));
  EXPECT_EQ(plan.num_sitting_out, 1);
}

TEST(BatchSchedulerTest, PagesThatAreOnTheirWayBackSpareOthers) {
  const std::vector<SequenceView> sequences = {Running(64), Running(70)};
  const StepPlan plan = Scheduler().PlanStep({.sequences = sequences, .num_pages_free = 0, .num_pages_returning = 1});
  EXPECT_THAT(plan.retracted, IsEmpty());
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{1, 1, 0}));
}

TEST(BatchSchedulerTest, TheYoungestSitsOutWhereItCannotGrow) {
  const std::vector<SequenceView> sequences = {Running(70), Running(64)};
  const StepPlan plan = Scheduler().PlanStep({.sequences = sequences, .num_pages_free = 0});
  EXPECT_THAT(plan.retracted, IsEmpty());
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 1, 0}));
  EXPECT_EQ(plan.num_sitting_out, 1);
}

TEST(BatchSchedulerTest, ReplaysTakeTheRowsThatOthersLeave) {
  std::vector<SequenceView> sequences = {Running(10), Running(64), Running(20)};
  sequences[1].num_rows_pending = 100;
  sequences[1].num_pages = 3;
  const StepPlan plan = Scheduler().PlanStep({.sequences = sequences, .num_pages_free = 4});
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 1, 0}, PlannedRows{1, 14, 0}, PlannedRows{2, 1, 0}));
}

TEST(BatchSchedulerTest, DraftsTakeTheRowsAndPagesThatAreLeft) {
  std::vector<SequenceView> sequences = {Running(10), Running(62), Running(62)};
  for (SequenceView& sequence : sequences) sequence.num_drafts = 5;
  // 16 rows: three known tokens, then the oldest windows whole. Five pages: each sequence may need one.
  const StepPlan plan = Scheduler().PlanStep({.sequences = sequences, .num_pages_free = 5});
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 1, 0, 5}, PlannedRows{1, 1, 1, 5}, PlannedRows{2, 1, 1, 3}));
  EXPECT_THAT(Scheduler().PlanStep({.sequences = sequences, .num_pages_free = 3}).rows,
              ElementsAre(PlannedRows{0, 1, 0, 5}, PlannedRows{1, 1, 0, 1}, PlannedRows{2, 1, 0, 1}));
  sequences[0].num_rows_pending = 20;  // it replays: no window before it is done
  EXPECT_THAT(Scheduler().PlanStep({.sequences = sequences, .num_pages_free = 3}).rows,
              ElementsAre(PlannedRows{0, 14, 0, 0}, PlannedRows{1, 1, 0, 0}, PlannedRows{2, 1, 0, 0}));
}

// A buffer of two pages for one page of tokens grows with the 65th token, of three no more.
TEST(BatchSchedulerTest, DraftsTakeNoDevicePageAndFitTheNewestSlots) {
  const BatchScheduler scheduler(
      {.num_sequences_max = 8, .num_rows_max = 16, .num_rows_per_sequence_max = 4, .num_kept_pages_max = 2});
  std::vector<SequenceView> sequences = {Running(62), Running(200)};
  sequences[0].num_device_pages = 2;
  sequences[1].num_device_pages = 3;
  for (SequenceView& sequence : sequences) sequence.num_drafts = 5;
  const StepPlan plan = scheduler.PlanStep({.sequences = sequences, .num_pages_free = 9, .num_device_pages_free = 9});
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 1, 0, 1, 0}, PlannedRows{1, 1, 0, 3, 0}));
}

TEST(BatchSchedulerTest, WhoeverHasNoCreditTakesNoRowAndNoPage) {
  std::vector<SequenceView> sequences = {Running(64), Running(64), Running(20)};
  sequences[0].has_credit = false;
  const StepPlan plan = Scheduler().PlanStep({.sequences = sequences, .num_pages_free = 1});
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{1, 1, 1}, PlannedRows{2, 1, 0}));
  EXPECT_THAT(plan.retracted, IsEmpty()) << "it may keep its pages while nobody needs them";
  EXPECT_EQ(plan.num_without_credit, 1);
  EXPECT_EQ(plan.num_sitting_out, 0);
}

TEST(BatchSchedulerTest, AdmissionKeepsOrderAndAPageForEveryHolder) {
  const std::vector<Reservation> wanted = {{1, 3}, {1, 1}};
  EXPECT_EQ(Scheduler().PlanAdmission({.wanted = wanted, .num_holders = 0, .num_pages_free = 3}), 1);
  EXPECT_EQ(Scheduler().PlanAdmission({.wanted = wanted, .num_holders = 0, .num_pages_free = 5}), 2);
  EXPECT_EQ(Scheduler().PlanAdmission({.wanted = wanted, .num_holders = 2, .num_pages_free = 4}), 0);
  EXPECT_EQ(Scheduler().PlanAdmission({.wanted = wanted, .num_holders = 8, .num_pages_free = 99}), 0);
}

TEST(BatchSchedulerTest, AllChoicesOfARequestAreAdmittedOrNone) {
  const std::vector<Reservation> wanted = {{4, 6}, {4, 6}, {1, 1}};
  EXPECT_EQ(Scheduler().PlanAdmission({.wanted = wanted, .num_holders = 0, .num_pages_free = 5}), 0);
  EXPECT_EQ(Scheduler().PlanAdmission({.wanted = wanted, .num_holders = 0, .num_pages_free = 6}), 1);
  // The second needs a page for each of the first's choices besides its own.
  EXPECT_EQ(Scheduler().PlanAdmission({.wanted = wanted, .num_holders = 0, .num_pages_free = 15}), 1);
  EXPECT_EQ(Scheduler().PlanAdmission({.wanted = wanted, .num_holders = 0, .num_pages_free = 16}), 2);
  // Eight sequences run: no room for a ninth. Five run: no room for four more, and nobody overtakes.
  EXPECT_EQ(Scheduler().PlanAdmission({.wanted = wanted, .num_holders = 0, .num_pages_free = 99}), 2);
  EXPECT_EQ(Scheduler().PlanAdmission({.wanted = wanted, .num_holders = 5, .num_pages_free = 99}), 0);
}

TEST(BatchSchedulerTest, ARetractedChoiceGivesBackWhatItAloneHolds) {
  // Two choices of one request share 3 pages; the older request in front needs two pages to replay.
  std::vector<SequenceView> sequences = {Running(64), Running(200), Running(200)};
  sequences[0].num_rows_pending = 70;
  sequences[2].num_pages_shared = 3;
  const BatchScheduler scheduler({.num_sequences_max = 8, .num_rows_max = 100});
  const StepPlan plan = scheduler.PlanStep({.sequences = sequences, .num_pages_free = 0});
  EXPECT_THAT(plan.retracted, ElementsAre(2, 1)) << "the second's single page does not suffice";
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 70, 2}));
  sequences[0].num_rows_pending = 1;
  EXPECT_THAT(scheduler.PlanStep({.sequences = sequences, .num_pages_free = 0}).retracted, ElementsAre(2));
}

// ---- HiSparse: two kept pages and one of newest tokens at most ----

const BatchScheduler& HiSparseScheduler() {
  static const BatchScheduler scheduler(
      {.num_sequences_max = 8, .num_rows_max = 128, .num_rows_per_sequence_max = 64, .num_kept_pages_max = 2});
  return scheduler;
}

TEST(BatchSchedulerTest, ABufferIsTakenWithTheFirstRowAndGrowsWithTheSequence) {
  std::vector<SequenceView> sequences = {Running(10), Running(64), Running(500)};
  sequences[1].num_device_pages = 2;
  sequences[1].num_pages = 2;
  sequences[2].num_device_pages = 3;
  const StepPlan plan =
      HiSparseScheduler().PlanStep({.sequences = sequences, .num_pages_free = 1, .num_device_pages_free = 3});
  EXPECT_THAT(plan.rows,
              ElementsAre(PlannedRows{0, 1, 0, 0, 2}, PlannedRows{1, 1, 0, 0, 1}, PlannedRows{2, 1, 0, 0, 0}));
  EXPECT_THAT(plan.swapped_out, IsEmpty());
}

TEST(BatchSchedulerTest, TheYoungestLeavesItsBufferAndKeepsItsPages) {
  std::vector<SequenceView> sequences = {Running(64), Running(500), Running(500)};
  sequences[0].num_device_pages = 2;
  sequences[0].num_pages = 2;
  sequences[1].num_device_pages = sequences[2].num_device_pages = 3;
  const StepPlan plan = HiSparseScheduler().PlanStep({.sequences = sequences, .num_pages_free = 0});
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 1, 0, 0, 1}, PlannedRows{1, 1, 0, 0, 0}));
  EXPECT_THAT(plan.swapped_out, ElementsAre(2));
  EXPECT_THAT(plan.retracted, IsEmpty());
  EXPECT_EQ(plan.num_sitting_out, 1);
}

TEST(BatchSchedulerTest, ReplaysOfASequenceFitItsNewestSlots) {
  std::vector<SequenceView> sequences = {Running(200)};
  sequences[0].num_rows_pending = 100;
  sequences[0].num_pages = 5;
  const StepPlan plan = HiSparseScheduler().PlanStep({.sequences = sequences, .num_device_pages_free = 3});
  EXPECT_THAT(plan.rows, ElementsAre(PlannedRows{0, 64, 0, 0, 3}));
}

TEST(BatchSchedulerTest, AdmissionCountsBothPools) {
  const std::vector<Reservation> wanted = {{1, 3, 3}, {1, 3, 3}, {1, 3, 3}};
  const auto admitted = [&](int64_t num_device_pages, int64_t num_promised, int num_holders, int64_t num_pages_free) {
    return HiSparseScheduler().PlanAdmission({.wanted = wanted,
                                              .num_holders = num_holders,
                                              .num_pages_free = num_pages_free,
                                              .num_device_pages = num_device_pages,
                                              .num_device_pages_promised = num_promised});
  };
  EXPECT_EQ(admitted(9, 0, 0, 99), 3);
  EXPECT_EQ(admitted(8, 0, 0, 99), 2);
  EXPECT_EQ(admitted(9, 0, 0, 7), 2) << "host pages run out first";
  EXPECT_EQ(admitted(9, 4, 2, 99), 1);
  EXPECT_EQ(admitted(2, 0, 0, 99), 1) << "one that is alone gets what there is";
}

// Whatever is planned, no page of either pool is given twice, and the oldest that can be stepped is.
TEST(BatchSchedulerTest, NeverOverspendsTheDevicePool) {
  std::mt19937 rng(11);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  for (int round = 0; round < 20'000; ++round) {
    std::vector<SequenceView> sequences;
    for (int i = draw(1, 8); i > 0; --i) {
      sequences.push_back(Running(draw(1, 300)));
      sequences.back().num_rows_pending = draw(1, 5);
      sequences.back().has_credit = draw(0, 4) > 0;
      sequences.back().num_device_pages = draw(0, 2) == 0 ? 0 : 1 + std::min(2, sequences.back().num_pages);
    }
    int64_t held = 0;
    for (const SequenceView& sequence : sequences) held += sequence.num_device_pages;
    const int64_t total = std::max<int64_t>(3, held + draw(0, 4));
    const StepPlan plan = HiSparseScheduler().PlanStep(
        {.sequences = sequences, .num_pages_free = draw(0, 3), .num_device_pages_free = total - held});
    std::vector<int64_t> pages;
    for (const SequenceView& sequence : sequences) pages.push_back(sequence.num_device_pages);
    for (const int index : plan.retracted) pages[index] = 0;
    for (const int index : plan.swapped_out) pages[index] = 0;
    for (const PlannedRows& rows : plan.rows) {
      pages[rows.sequence_index] += rows.num_new_device_pages;
      const SequenceView& sequence = sequences[rows.sequence_index];
      ASSERT_GE(pages[rows.sequence_index],
                1 + std::min(2, kvcache::PagesForTokens(sequence.num_tokens + rows.num_rows)));
    }
    int64_t sum = 0;
    for (const int64_t of_sequence : pages) sum += of_sequence;
    ASSERT_LE(sum, total);
    if (sequences[0].has_credit && sequences[0].num_pages * 64 >= sequences[0].num_tokens + 5) {
      ASSERT_FALSE(plan.rows.empty());
      ASSERT_EQ(plan.rows[0].sequence_index, 0) << "the oldest is stepped";
    }
  }
}

TEST(BatchSchedulerTest, NeverOverspendsAndRetractsOnlyFromTheYoungEnd) {
  std::mt19937 rng(5);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  for (int round = 0; round < 20'000; ++round) {
    std::vector<SequenceView> sequences;
    const int num_sequences = draw(0, 8);
    for (int i = 0; i < num_sequences; ++i) {
      if (draw(0, 3) == 0) {
        sequences.push_back(Transferring(draw(1, 5)));
      } else {
        sequences.push_back(Running(draw(1, 3) * 64 - draw(0, 1)));
        if (draw(0, 4) == 0) {
          sequences.back().num_rows_pending = draw(1, 100);
          sequences.back().num_pages =
              kvcache::PagesForTokens(sequences.back().num_tokens + sequences.back().num_rows_pending);
        }
        if (sequences.back().num_rows_pending == 1) sequences.back().num_drafts = draw(0, 5);
        // A further choice of the request before it.
        if (i > 0 && sequences[i - 1].is_runnable && draw(0, 3) == 0) {
          sequences.back().num_pages_shared =
              draw(0, std::min(sequences[i - 1].num_pages, sequences.back().num_pages) - 1);
        }
      }
    }
    const int64_t free = draw(0, 4), returning = draw(0, 2);
    const StepPlan plan =
        Scheduler().PlanStep({.sequences = sequences, .num_pages_free = free, .num_pages_returning = returning});

    int64_t pages = free;
    int expected_victim = num_sequences - 1;
    for (const int victim : plan.retracted) {
      EXPECT_EQ(victim, expected_victim--);
      if (sequences[victim].is_runnable) pages += sequences[victim].num_pages - sequences[victim].num_pages_shared;
    }
    int rows = 0, previous = -1;
    for (const PlannedRows& planned : plan.rows) {
      const SequenceView& sequence = sequences[planned.sequence_index];
      EXPECT_GT(planned.sequence_index, previous);
      previous = planned.sequence_index;
      EXPECT_LE(planned.sequence_index, expected_victim);
      EXPECT_TRUE(sequence.is_runnable);
      EXPECT_GE(planned.num_rows, 1);
      EXPECT_LE(planned.num_rows, sequence.num_rows_pending);
      EXPECT_LE(sequence.num_tokens + planned.num_rows + planned.num_drafts,
                int64_t{kvcache::kPageTokens} * (sequence.num_pages + planned.num_new_pages));
      EXPECT_LE(planned.num_drafts, sequence.num_drafts);
      pages -= planned.num_new_pages;
      rows += planned.num_rows + planned.num_drafts;
    }
    EXPECT_GE(pages, 0);
    EXPECT_LE(rows, 16);
    // Without drafts the same sequences would have the same rows, and nobody else would be retracted.
    std::vector<SequenceView> plain = sequences;
    for (SequenceView& sequence : plain) sequence.num_drafts = 0;
    const StepPlan without =
        Scheduler().PlanStep({.sequences = plain, .num_pages_free = free, .num_pages_returning = returning});
    EXPECT_EQ(without.retracted, plan.retracted);
    ASSERT_EQ(without.rows.size(), plan.rows.size());
    int64_t pages_of_drafts = 0;
    for (size_t i = 0; i < plan.rows.size(); ++i) {
      EXPECT_EQ(without.rows[i].sequence_index, plan.rows[i].sequence_index);
      EXPECT_EQ(without.rows[i].num_rows, plan.rows[i].num_rows);
      EXPECT_EQ(without.rows[i].num_drafts, 0);
      pages_of_drafts += plan.rows[i].num_new_pages - without.rows[i].num_new_pages;
    }
    EXPECT_TRUE(pages_of_drafts == 0 || pages >= num_sequences) << "a draft took a page that others may need";
    // The oldest is never a victim, and sits out only where pages are coming back.
    EXPECT_TRUE(num_sequences == 0 || expected_victim >= 0);
    const bool oldest_steps = !plan.rows.empty() && plan.rows.front().sequence_index == 0;
    const bool drains = returning > 0 || std::any_of(plan.retracted.begin(), plan.retracted.end(),
                                                     [&](int i) { return !sequences[i].is_runnable; });
    if (num_sequences > 0 && sequences[0].is_runnable && (free > 0 || num_sequences > 1)) {
      EXPECT_TRUE(oldest_steps || drains) << "round " << round;
    }
  }
}

// Against the rule spelled out: who is admitted fits both pools and the number of sequences, in order of arrival, with
// a page left for each holder; and the first who is not would not fit.
TEST(BatchSchedulerTest, AdmissionIsTheLongestBeginningOfTheLineThatFits) {
  std::mt19937 rng(23);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
  for (int round = 0; round < 20'000; ++round) {
    const bool has_buffers = draw(0, 1) == 0;
    std::vector<Reservation> wanted;
    for (int i = draw(0, 6); i > 0; --i) {
      const int num_sequences = draw(1, 3);
      wanted.push_back({num_sequences, num_sequences + draw(0, 5), has_buffers ? num_sequences * draw(2, 3) : 0});
    }
    const AdmissionSnapshot snapshot{.wanted = wanted,
                                     .num_holders = draw(0, 8),
                                     .num_pages_free = draw(0, 25),
                                     .num_device_pages = has_buffers ? 12 : 0,
                                     .num_device_pages_promised = has_buffers ? draw(0, 14) : 0};
    const auto fits = [&](size_t count) {
      int64_t pages = 0, device_pages = snapshot.num_device_pages_promised, holders = snapshot.num_holders;
      for (size_t i = 0; i < count; ++i) {
        if (pages + wanted[i].num_pages + holders > snapshot.num_pages_free) return false;
        const bool is_alone = holders == 0;
        pages += wanted[i].num_pages;
        device_pages += wanted[i].num_device_pages;
        holders += wanted[i].num_sequences;
        if (holders > 8 || (!is_alone && device_pages > snapshot.num_device_pages)) return false;
      }
      return true;
    };
    const auto admitted = static_cast<size_t>(HiSparseScheduler().PlanAdmission(snapshot));
    ASSERT_LE(admitted, wanted.size());
    EXPECT_TRUE(fits(admitted)) << "round " << round;
    EXPECT_TRUE(admitted == wanted.size() || !fits(admitted + 1)) << "round " << round;
  }
}

// A worker in miniature: admission, transfers that take a while, steps, retraction, all in a pool of 6 pages whose
// largest request needs all 6.
TEST(BatchSchedulerTest, EveryRequestEndsInAPoolThatHoldsBarelyOne) {
  struct Request {
    int64_t prompt = 0, target = 0, written = 0, generated = 0;
    int pages = 0, transfer_left = 0;
    int64_t rows_pending() const { return std::max<int64_t>(1, prompt + generated - written); }
  };
  constexpr int kPoolPages = 6;
  for (int seed = 0; seed < 200; ++seed) {
    std::mt19937 rng(seed);
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
    std::deque<Request> waiting;
    for (int i = 0; i < 12; ++i) {
      Request request{.prompt = draw(1, 300)};
      request.target = std::min<int64_t>(draw(1, 200), kPoolPages * 64 - request.prompt);
      waiting.push_back(request);
    }
    std::vector<Request> holders;
    int64_t free = kPoolPages;
    int steps = 0;
    while (!waiting.empty() || !holders.empty()) {
      ASSERT_LT(++steps, 50'000) << "seed " << seed << " does not end";
      std::vector<Reservation> wanted;
      for (const Request& r : waiting) wanted.push_back({1, kvcache::PagesForTokens(r.prompt + r.generated)});
      const int admitted = Scheduler().PlanAdmission(
          {.wanted = wanted, .num_holders = static_cast<int>(holders.size()), .num_pages_free = free});
      for (int i = 0; i < admitted; ++i) {
        Request r = waiting.front();
        waiting.pop_front();
        r.pages = wanted[i].num_pages;
        r.written = 0;
        r.transfer_left = draw(1, 5);
        free -= r.pages;
        holders.push_back(r);
      }
      std::vector<SequenceView> views;
      for (Request& r : holders) {
        if (r.transfer_left > 0 && --r.transfer_left == 0) {
          r.written = r.prompt;
          r.generated = std::max<int64_t>(r.generated, 1);
        }
        views.push_back({.is_runnable = r.transfer_left == 0,
                         .num_rows_pending = static_cast<int>(r.rows_pending()),
                         .num_tokens = r.written,
                         .num_pages = r.pages});
      }
      const StepPlan plan = Scheduler().PlanStep({.sequences = views, .num_pages_free = free});
      for (const int victim : plan.retracted) {
        Request r = holders[victim];
        free += r.pages;
        r.pages = 0;
        waiting.push_front(r);
        ASSERT_EQ(victim, static_cast<int>(holders.size()) - 1);
        holders.pop_back();
      }
      for (const PlannedRows& rows : plan.rows) {
        Request& r = holders[rows.sequence_index];
        free -= rows.num_new_pages;
        ASSERT_GE(free, 0);
        r.pages += rows.num_new_pages;
        r.written += rows.num_rows;
        if (r.written == r.prompt + r.generated) ++r.generated;
      }
      std::erase_if(holders, [&](const Request& r) {
        if (r.generated < r.target || r.transfer_left > 0) return false;
        free += r.pages;
        return true;
      });
    }
    EXPECT_EQ(free, kPoolPages);
  }
}

}  // namespace
}  // namespace tandem::decode

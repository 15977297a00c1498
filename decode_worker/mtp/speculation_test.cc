// Proves that windows adapt to what was measured, go on probing, and that what is counted adds up.
#include "decode_worker/mtp/speculation.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

void Note(Speculation& speculation, int num_drafts, int num_accepted, DraftState& state) {
  state.drafts.assign(static_cast<size_t>(num_drafts), 0);
  speculation.NoteWindow(num_accepted, state);
}

TEST(SpeculationTest, IsOffWithoutSteps) {
  EXPECT_FALSE(Speculation({}).is_on());
  EXPECT_TRUE(Speculation({.num_steps = 1}).is_on());
}

TEST(SpeculationTest, AFixedLengthStaysWhateverIsMeasured) {
  Speculation speculation({.num_steps = 4, .is_adaptive = false});
  DraftState state;
  const std::vector<const Acceptance*> one = {&state.acceptance};
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(speculation.NextDraftLength(one), 4);
    Note(speculation, 4, 0, state);
    speculation.NoteStep(5, absl::Milliseconds(5 * 5));
  }
}

// Steps whose time grows with every row, and drafts that never come true: none are made but for the probes, which find
// out when that changes.
TEST(SpeculationTest, StopsDraftingInVainAndNoticesWhenItWouldPay) {
  Speculation speculation({.num_steps = 3});
  DraftState state;
  const std::vector<const Acceptance*> one = {&state.acceptance};
  const auto step = [&](int num_hits) {
    const int length = speculation.NextDraftLength(one);
    speculation.NoteDrafting(length, length, length * absl::Milliseconds(1));
    speculation.NoteStep(1 + length, absl::Milliseconds(10 + (1 + length)));
    Note(speculation, length, std::min(length, num_hits), state);
    return length;
  };
  for (int i = 0; i < 100; ++i) step(0);
  int num_probes = 0;
  for (int i = 0; i < 10 * Speculation::kProbeInterval; ++i) {
    const int length = step(0);
    EXPECT_TRUE(length == 0 || length == 3);
    num_probes += length == 3 ? 1 : 0;
  }
  EXPECT_EQ(num_probes, 10);
  for (int i = 0; i < 2000; ++i) step(3);
  EXPECT_EQ(step(3), 3);
  EXPECT_EQ(speculation.draft_length(), 3);
}

TEST(SpeculationTest, CountsEachPlaceAndTheMeanLength) {
  Speculation speculation({.num_steps = 3});
  DraftState state;
  EXPECT_EQ(speculation.counters().accept_length(), 0);
  Note(speculation, 3, 3, state);
  Note(speculation, 3, 1, state);
  Note(speculation, 2, 0, state);
  Note(speculation, 0, 0, state);
  const SpeculativeCounters& counters = speculation.counters();
  EXPECT_EQ(counters.windows, 4);
  EXPECT_EQ(counters.drafted[0], 3);
  EXPECT_EQ(counters.drafted[2], 2);
  EXPECT_EQ(counters.accepted[0], 2);
  EXPECT_EQ(counters.accepted[1], 1);
  EXPECT_EQ(counters.num_drafted(), 8);
  EXPECT_EQ(counters.num_accepted(), 4);
  EXPECT_EQ(counters.accept_length(), 2.0);
  EXPECT_EQ(state.num_windows, 4);
  EXPECT_EQ(state.num_drafted, 8);
  EXPECT_EQ(state.num_accepted, 4);
}

// Lengths 1, 1.25, 1.5, 1.75, .. of four windows each, against what buckets say by their bounds.
TEST(SpeculationTest, EachWindowAndEachAnswerIsInTheBucketOfItsLength) {
  Speculation speculation({.num_steps = 3, .is_adaptive = false});
  std::vector<int64_t> windows(4), answers(7);
  double sum = 0;
  speculation.NoteAnswer({});  // it had no window
  for (int total = 0; total <= 12; ++total) {
    DraftState state;
    for (int window = 0; window < 4; ++window) {
      const int accepted = total / 4 + (window < total % 4 ? 1 : 0);
      Note(speculation, 3, accepted, state);
      ++windows[accepted];
    }
    speculation.NoteAnswer(state);
    const double length = 1 + total / 4.0;
    sum += length;
    size_t bucket = 0;
    while (length > 1 + static_cast<double>(bucket) / 2) ++bucket;
    ++answers[bucket];
  }
  const SpeculativeCounters& counters = speculation.counters();
  for (size_t i = 0; i < windows.size(); ++i) EXPECT_EQ(counters.windows_by_accepted[i], windows[i]) << i;
  for (size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(counters.answers_by_length[i], answers[i]) << i;
  EXPECT_DOUBLE_EQ(counters.answer_lengths_sum, sum);
}

TEST(SpeculationTest, SaysWhyTheLengthIsWhatItIs) {
  Speculation speculation({.num_steps = 2});
  DraftState state;
  const std::vector<const Acceptance*> one = {&state.acceptance};
  for (int i = 0; i < 500; ++i) {
    const int length = speculation.NextDraftLength(one);
    speculation.NoteDrafting(length, length, length * absl::Milliseconds(1));
    speculation.NoteStep(1 + length, absl::Milliseconds(10));  // rows are free
    Note(speculation, length, length, state);
  }
  const std::string page = speculation.Describe();
  EXPECT_THAT(page, ::testing::HasSubstr("mtp: 2 drafts a window now, 2 at most"));
  EXPECT_THAT(page, ::testing::HasSubstr("1 500 100.0%"));
  EXPECT_THAT(page, ::testing::ContainsRegex(
                        "0 1.00 10.000 100\n1 1.9[0-9] 11.000 1[0-9]+\n2 2.9[0-9] 12.000 2[0-9]+ <- chosen"));
}

}  // namespace
}  // namespace tandem::decode

// Proves that the length of windows is the one that brings the most tokens a second, against every length tried, and
// that what it is chosen by follows what was measured.
#include "decode_worker/mtp/draft_length.h"

#include <cstdint>
#include <random>
#include <vector>

#include "decode_worker/mtp/acceptance.h"
#include "decode_worker/mtp/step_times.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

// A sequence whose drafts come true with that chance each.
std::vector<double> TokensOf(double chance, int num_steps, int num_sequences) {
  std::vector<double> tokens;
  double all = 0, reached = 1;
  for (int k = 0; k <= num_steps; ++k) {
    all += reached * num_sequences;
    reached *= chance;
    tokens.push_back(all);
  }
  return tokens;
}

TEST(DraftLengthTest, WhereRowsAreFreeWindowsAreLong) {
  const StepTimes times{.step = 10e-3, .draft_run = 0.2e-3};
  EXPECT_EQ(DraftLength(times, TokensOf(0.9, 3, 1), 1), 3);
  EXPECT_EQ(DraftLength({}, TokensOf(0.1, 5, 4), 4), 5) << "nothing is known yet";
}

TEST(DraftLengthTest, WhereARowCostsAsMuchAsAStepNothingIsDrafted) {
  const StepTimes times{.row = 1e-3, .draft_row = 0.2e-3};
  EXPECT_EQ(DraftLength(times, TokensOf(0.99, 3, 8), 8), 0);
}

TEST(DraftLengthTest, DraftsThatNeverComeTrueAreNotMade) {
  const StepTimes times{.step = 10e-3, .row = 1e-3, .draft_run = 1e-3};
  EXPECT_EQ(DraftLength(times, TokensOf(0, 3, 1), 1), 0);
}

TEST(DraftLengthTest, LargerBatchesHaveShorterWindows) {
  const StepTimes times{.step = 10e-3, .row = 0.5e-3, .draft_run = 0.5e-3, .draft_row = 0.05e-3};
  int last = 8;
  for (const int num_sequences : {1, 4, 16, 64, 256}) {
    const int length = DraftLength(times, TokensOf(0.8, 8, num_sequences), num_sequences);
    EXPECT_LE(length, last);
    last = length;
  }
  EXPECT_EQ(last, 0);
}

TEST(DraftLengthTest, NoOtherLengthBringsMoreTokensASecond) {
  std::mt19937 rng(3);
  const auto draw = [&](double high) { return std::uniform_real_distribution<double>(0, high)(rng); };
  for (int round = 0; round < 5000; ++round) {
    const StepTimes times{.step = draw(2e-2), .row = draw(2e-3), .draft_run = draw(2e-3), .draft_row = draw(2e-4)};
    const int num_sequences = 1 + static_cast<int>(rng() % 40);
    const std::vector<double> tokens = TokensOf(draw(1), static_cast<int>(rng() % 9), num_sequences);
    const auto rate = [&](int k) {
      return tokens[k] / (times.step + times.row * num_sequences * (1 + k) +
                          k * (times.draft_run + times.draft_row * num_sequences));
    };
    const int chosen = DraftLength(times, tokens, num_sequences);
    for (int k = 0; k < static_cast<int>(tokens.size()); ++k) EXPECT_GE(rate(chosen) * (1 + 1e-12), rate(k));
  }
}

TEST(AcceptanceTest, FollowsWhatCameTrueAndForgets) {
  Acceptance acceptance;
  EXPECT_GT(acceptance.ExpectedTokens(3), 1.5) << "a new sequence drafts";
  for (int i = 0; i < 200; ++i) acceptance.Note(3, 3);
  EXPECT_GT(acceptance.ExpectedTokens(3), 3.85);
  for (int i = 0; i < 200; ++i) acceptance.Note(3, 1);
  EXPECT_GT(acceptance.Chance(0), 0.97);
  EXPECT_LT(acceptance.Chance(1), 0.1);
  EXPECT_GT(acceptance.Chance(2), 0.9) << "a place behind one that fails is not tried, and nothing is learned of it";
  for (int i = 0; i < 200; ++i) acceptance.Note(0, 0);
  EXPECT_LT(acceptance.Chance(1), 0.1) << "no window, nothing learned";
  EXPECT_EQ(acceptance.ExpectedTokens(0), 1);
}

TEST(AcceptanceTest, ChancesComeNearTheTrueOnes) {
  std::mt19937 rng(7);
  const double chances[] = {0.9, 0.6, 0.3};
  Acceptance acceptance;
  double mean[3] = {};
  constexpr int kWindows = 20'000;
  for (int i = 0; i < kWindows; ++i) {
    int hits = 0;
    while (hits < 3 && std::uniform_real_distribution<double>(0, 1)(rng) < chances[hits]) ++hits;
    acceptance.Note(3, hits);
    for (int place = 0; place < 3; ++place) mean[place] += acceptance.Chance(place) / kWindows;
  }
  for (int place = 0; place < 3; ++place) EXPECT_NEAR(mean[place], chances[place], 0.03);
}

TEST(RowTimesTest, FindsTheLineThroughWhatWasMeasured) {
  RowTimes times;
  EXPECT_EQ(times.fixed(), 0);
  EXPECT_EQ(times.each(), 0);
  std::mt19937 rng(11);
  for (int i = 0; i < 500; ++i) {
    const int rows = 1 + static_cast<int>(rng() % 32);
    times.Note(rows, 5e-3 + 2e-4 * rows + std::uniform_real_distribution<double>(-1e-4, 1e-4)(rng));
  }
  EXPECT_NEAR(times.fixed(), 5e-3, 2e-4);
  EXPECT_NEAR(times.each(), 2e-4, 1e-5);
}

TEST(RowTimesTest, IsNeverBelowZero) {
  RowTimes same, falling, steep;
  for (int i = 0; i < 100; ++i) {
    same.Note(4, 8e-3);
    falling.Note(i % 10, 1e-3 * (10 - i % 10));
    steep.Note(i % 2 == 0 ? 10 : 20, i % 2 == 0 ? 1e-3 : 8e-3);
  }
  EXPECT_DOUBLE_EQ(same.fixed(), 8e-3);
  EXPECT_EQ(same.each(), 0);
  EXPECT_EQ(falling.each(), 0);
  EXPECT_GE(steep.fixed(), 0);
  EXPECT_GT(steep.each(), 0);
}

}  // namespace
}  // namespace tandem::decode

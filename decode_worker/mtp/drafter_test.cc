// Proves what the drafter asks of the MTP layer, row by row, and when a window ends, against an executor that is a
// script: it notes every row and answers what it was told to.
#include "decode_worker/mtp/drafter.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/model_executor.h"
#include "worker_shell/answer_constraints.h"

namespace tandem::decode {
namespace {

using kernels::Bf16;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kVocab = 20;
constexpr int32_t kStop = 3;

// Its hidden state behind a row is the row's own plus one; what follows a token is as scripted, else the token plus
// one.
class ScriptedExecutor final : public model::ModelExecutor {
 public:
  struct Row {
    int32_t page = 0;  // the first of its sequence
    int64_t position = 0;
    int32_t next_token = 0;
    int hidden = 0;
    bool operator==(const Row&) const = default;
  };
  absl::Status Forward(const model::RowBatch&, absl::FunctionRef<void(int)>, absl::Span<float>) override {
    return absl::InternalError("drafts take no step");
  }
  absl::Status ForwardWithHidden(const model::RowBatch&, absl::FunctionRef<void(int)>, absl::Span<float>,
                                 absl::Span<Bf16>) override {
    return absl::InternalError("drafts take no step");
  }
  absl::Status RunMtp(const model::RowBatch& batch, absl::Span<const Bf16> hidden, absl::FunctionRef<void(int)>,
                      absl::Span<float> logits, absl::Span<Bf16> out_hidden) override {
    if (!next_error.ok()) return next_error;
    std::vector<Row>& run = runs.emplace_back();
    for (const model::Segment& segment : batch.segments) {
      EXPECT_EQ(segment.row_begin, static_cast<int>(run.size()));
      for (int i = 0; i < segment.num_rows; ++i) {
        run.push_back({.page = segment.page_table[0],
                       .position = segment.first_position + i,
                       .next_token = batch.tokens[run.size()],
                       .hidden = hidden[run.size()].bits});
      }
    }
    std::fill(logits.begin(), logits.end(), 0.0f);
    for (size_t i = 0; i < batch.logits_rows.size(); ++i) {
      const Row& row = run[batch.logits_rows[i]];
      out_hidden[i].bits = static_cast<uint16_t>(row.hidden + 1);
      const auto known = follows.find(row.next_token);
      logits[i * kVocab + (known == follows.end() ? (row.next_token + 1) % kVocab : known->second)] = 5;
    }
    return absl::OkStatus();
  }
  absl::Status PagesArrived(absl::Span<const int32_t>) override { return absl::OkStatus(); }
  int vocab_size() const override { return kVocab; }
  int num_layers() const override { return 2; }
  bool has_mtp() const override { return true; }
  int hidden_size() const override { return 1; }

  std::map<int32_t, int32_t> follows;
  absl::Status next_error;
  std::vector<std::vector<Row>> runs;
};

// A sequence whose prompt has num_prompt tokens, and whose last `num_pending` positions have hidden states 100, 101,
// ...
struct TestSequence {
  TestSequence(int32_t page, int64_t num_prompt, std::vector<uint32_t> tokens, int num_pending, int num_drafts)
      : table({page}), generated(std::move(tokens)), counts({}, 100) {
    state.num_final = num_prompt + static_cast<int64_t>(generated.size()) - 1 - num_pending;
    for (int i = 0; i < num_pending; ++i) state.pending.push_back({static_cast<uint16_t>(100 + i)});
    draws.stop_tokens = {kStop};
    draws.params.temperature = 0;
    order = {.state = &state,
             .generated = generated,
             .num_prompt_tokens = num_prompt,
             .page_table = table,
             .place = {.choice = 0, .draws = &draws, .counts = &counts},
             .num_drafts = num_drafts};
  }
  TestSequence(const TestSequence&) = delete;

  std::vector<int32_t> table;
  std::vector<uint32_t> generated;
  DraftState state;
  worker_shell::DrawRules draws;
  model::TokenCounts counts;
  DraftOrder order;
};

class DrafterTest : public ::testing::Test {
 protected:
  absl::Status Draft(const std::vector<TestSequence*>& sequences, int num_rows_max = 8) {
    Drafter drafter(executor_, drawer_, num_rows_max);
    std::vector<DraftOrder> orders;
    for (TestSequence* sequence : sequences) orders.push_back(sequence->order);
    const absl::Status status = drafter.Draft(absl::MakeSpan(orders));
    num_runs_ = drafter.num_runs();
    num_rows_ = drafter.num_rows();
    return status;
  }
  using Row = ScriptedExecutor::Row;

  ScriptedExecutor executor_;
  worker_shell::AnswerConstraints constraints_{nullptr};
  TokenDrawer drawer_{kVocab, constraints_};
  int num_runs_ = 0, num_rows_ = 0;
};

TEST_F(DrafterTest, ChainsOneDraftAfterTheOther) {
  TestSequence sequence(7, 10, {5, 6, 7}, 2, 3);
  ASSERT_TRUE(Draft({&sequence}).ok());
  EXPECT_THAT(sequence.state.drafts, ElementsAre(8, 9, 10));
  // Tokens 5, 6, 7 stand at 10, 11, 12: positions 10 and 11 have hidden states, and each row holds the next token.
  EXPECT_THAT(executor_.runs, ElementsAre(ElementsAre(Row{7, 10, 6, 100}, Row{7, 11, 7, 101}),
                                          ElementsAre(Row{7, 12, 8, 102}), ElementsAre(Row{7, 13, 9, 103})));
  EXPECT_EQ(sequence.state.num_final, 12);
  EXPECT_THAT(sequence.state.pending, IsEmpty());
  EXPECT_EQ(num_runs_, 3);
  EXPECT_EQ(num_rows_, 4);
}

TEST_F(DrafterTest, TheFirstWindowBeginsWithTheRecordOfThePromptsLastToken) {
  TestSequence sequence(7, 10, {5}, 1, 1);
  ASSERT_TRUE(Draft({&sequence}).ok());
  EXPECT_THAT(executor_.runs, ElementsAre(ElementsAre(Row{7, 9, 5, 100})));
  EXPECT_THAT(sequence.state.drafts, ElementsAre(6));
}

TEST_F(DrafterTest, SequencesShareRunsAndEndEachForItself) {
  TestSequence a(1, 10, {5}, 1, 3), b(2, 20, {8, 9}, 1, 1), c(3, 30, {12}, 1, 0);
  ASSERT_TRUE(Draft({&a, &b, &c}).ok());
  EXPECT_THAT(a.state.drafts, ElementsAre(6, 7, 8));
  EXPECT_THAT(b.state.drafts, ElementsAre(10));
  EXPECT_THAT(c.state.drafts, IsEmpty());
  EXPECT_THAT(executor_.runs, ElementsAre(ElementsAre(Row{1, 9, 5, 100}, Row{2, 20, 9, 100}, Row{3, 29, 12, 100}),
                                          ElementsAre(Row{1, 10, 6, 101}), ElementsAre(Row{1, 11, 7, 102})));
}

TEST_F(DrafterTest, ADraftThatWouldEndTheAnswerEndsTheWindowBeforeIt) {
  TestSequence sequence(1, 10, {1}, 1, 5);
  ASSERT_TRUE(Draft({&sequence}).ok());
  EXPECT_THAT(sequence.state.drafts, ElementsAre(2)) << "3 is a stop token: no row behind it";
  // Where it may not be drawn yet it is masked, and the window goes on with another token.
  TestSequence masked(1, 10, {1}, 1, 2);
  masked.draws.first_stop_position = 13;
  ASSERT_TRUE(Draft({&masked}).ok());
  EXPECT_THAT(masked.state.drafts, ElementsAre(2, 0)) << "all else is alike, so the lowest id";
}

TEST_F(DrafterTest, PenaltiesLookAtTheDraftsBeforeAndForgetThemAfterwards) {
  TestSequence sequence(1, 10, {5}, 1, 3);
  sequence.draws.params.frequency_penalty = 10;
  executor_.follows = {{5, 6}, {6, 5}, {0, 6}};
  ASSERT_TRUE(Draft({&sequence}).ok());
  // Behind 6 comes 5, but it is there already; behind 0 comes 6, but it is a draft.
  EXPECT_THAT(sequence.state.drafts, ElementsAre(6, 0, 1));
  for (const model::TokenCounts::Entry& entry : sequence.counts.entries()) EXPECT_EQ(entry.num_generated, 0);
}

TEST_F(DrafterTest, AWindowEndsWhereNothingCanBeDrawn) {
  TestSequence sequence(1, 10, {5}, 1, 3);
  for (int32_t token = 0; token < kVocab; ++token) sequence.draws.params.logit_bias.push_back({token, -100});
  ASSERT_TRUE(Draft({&sequence}).ok());
  EXPECT_THAT(sequence.state.drafts, IsEmpty());
}

TEST_F(DrafterTest, PendingRecordsAreWrittenInRunsThatFit) {
  std::vector<uint32_t> tokens(20);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i % 3);
  TestSequence a(1, 10, tokens, 7, 0), b(2, 10, tokens, 5, 2), c(3, 10, tokens, 1, 2);
  ASSERT_TRUE(Draft({&a, &b, &c}, /*num_rows_max=*/4).ok());
  ASSERT_EQ(executor_.runs.size(), 5u);
  std::vector<Row> rows;
  for (size_t run = 0; run < 4; ++run) {
    EXPECT_LE(executor_.runs[run].size(), 4u);
    rows.insert(rows.end(), executor_.runs[run].begin(), executor_.runs[run].end());
  }
  std::vector<Row> expected;
  for (const TestSequence* sequence : {&a, &b, &c}) {
    const int num_pending = sequence == &a ? 7 : sequence == &b ? 5 : 1;
    for (int i = 0; i < num_pending; ++i) {
      const int64_t position = 29 - num_pending + i;
      expected.push_back({sequence->table[0], position, static_cast<int32_t>(tokens[position + 1 - 10]), 100 + i});
    }
  }
  EXPECT_EQ(rows, expected);
  // The second's window and the third's go on together, from the hidden states of different runs.
  EXPECT_THAT(executor_.runs[4], ElementsAre(Row{2, 29, 2, 105}, Row{3, 29, 2, 101}));
  EXPECT_THAT(b.state.drafts, ElementsAre(2));  // and then the stop token
}

TEST_F(DrafterTest, TheExecutorsErrorIsReturned) {
  TestSequence sequence(1, 10, {5}, 1, 3);
  executor_.next_error = absl::ResourceExhaustedError("no room");
  EXPECT_EQ(Draft({&sequence}).message(), "no room");
}

}  // namespace
}  // namespace tandem::decode

// Drafts the tokens that are likely to follow the newest one of each sequence, by chaining the model's MTP layer.
//
// First the records of positions whose hidden states the last steps brought are written; the last of these rows says
// the first draft, and each draft, with the hidden state that comes beside it, is the row that says the next one. A
// draft is drawn as its token will be: same rules, same noise, other logits (token_drawer.h). So it comes true where
// the two rows of logits agree about one draw, not where they agree about everything.
// A window ends before its length where nothing can be drawn, and before a draft that would end the answer: a row
// behind such a token serves nobody.
// Knows pages, rows and draws, nothing of requests. Tested by drafter_test.cc, engine_mtp_test.cc and, on the model
// itself, //tests/workers:mtp_test.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "decode_worker/mtp/draft_state.h"
#include "decode_worker/token_drawer.h"
#include "model/model_executor.h"

namespace tandem::decode {

// One sequence of the step.
struct DraftOrder {
  DraftState* state = nullptr;           // its drafts are filled in
  absl::Span<const uint32_t> generated;  // all of its generated tokens, from position num_prompt_tokens on
  int64_t num_prompt_tokens = 0;
  absl::Span<const int32_t> page_table;  // covers the positions of the window
  DrawPlace place;                       // of what comes before the newest token; as it was when Draft returns
  int num_drafts = 0;                    // at most; 0: pending records are written and no more
};

class Drafter final {
 public:
  // num_rows_max: of one batch of the executor, which has an MTP layer.
  Drafter(model::ModelExecutor& executor, TokenDrawer& drawer, int num_rows_max)
      : executor_(executor), drawer_(drawer), num_rows_max_(num_rows_max) {}

  // Orders with num_drafts > 0 have exactly one token whose KV is not written. The executor's error.
  absl::Status Draft(absl::Span<DraftOrder> orders);

  // Runs of the MTP layer that the last call took, and their rows.
  int num_runs() const { return num_runs_; }
  int num_rows() const { return num_rows_; }

 private:
  // What one sequence goes on with: the logits and the hidden state behind its last row.
  struct Chain {
    DraftOrder* order = nullptr;
    size_t output = 0;  // of the last run
    std::vector<int32_t> taken_in;
  };
  void AddRow(const DraftOrder& order, int64_t position, int32_t next_token, const kernels::Bf16* hidden);
  absl::Status Run();  // over the rows added; outputs behind those of wants_output_
  absl::Status WritePending(absl::Span<DraftOrder> orders, std::vector<Chain>& chains);
  // Draws the chain's next draft; false where its window ends.
  bool DrawNext(Chain& chain);
  // Draws for all chains of the last run; those whose windows go on are added to `left`, with their hidden states.
  void DrawAll(std::vector<Chain>& of_run, std::vector<Chain>& left);

  model::ModelExecutor& executor_;
  TokenDrawer& drawer_;
  const int num_rows_max_;
  int num_runs_ = 0;
  int num_rows_ = 0;
  // Of the next run.
  std::vector<int32_t> tokens_;
  std::vector<model::Segment> segments_;
  std::vector<kernels::Bf16> hidden_;
  std::vector<int32_t> logits_rows_;
  // Of the last run.
  std::vector<float> logits_;
  std::vector<kernels::Bf16> out_hidden_;
  std::vector<kernels::Bf16> chain_hidden_;  // of the chains that go on, in their order
};

}  // namespace tandem::decode

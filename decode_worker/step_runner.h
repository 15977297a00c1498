// Runs one forward pass over rows of several sequences and draws the token behind each row that holds.
//
// Rows of known tokens hold. A draft's row holds where the draft is the token that was drawn behind the row before it:
// rows behind the first draft that is not are computed in vain, and nothing is drawn behind them.
// Buffers are kept from step to step. Knows rows, pages and draws, nothing of requests. Tested by step_runner_test.cc
// and engine_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "decode_worker/token_drawer.h"
#include "kernels/dtypes.h"
#include "model/model_executor.h"
#include "model/sampler.h"

namespace tandem::decode {

// Consecutive positions of one sequence: generated tokens whose KV is to be written, and drafts behind the newest one.
struct StepRows {
  absl::Span<const uint32_t> tokens;  // at least one
  absl::Span<const int32_t> drafts;
  int64_t first_position = 0;
  absl::Span<const int32_t> page_table;
  absl::Span<const int32_t> device_pages;  // as in model::Segment
  DrawPlace place;  // of what comes before the rows; those that hold are taken in, each before its draw
};

class StepRunner final {
 public:
  // num_rows_max: of one step. Takes the memory of their logits.
  StepRunner(model::ModelExecutor& executor, TokenDrawer& drawer, int num_rows_max);
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  using Draw = absl::StatusOr<model::SampledToken>;
  // Of the rows of one sequence that hold, in their order.
  struct Result {
    absl::Span<const Draw> draws;            // one row's error is its own, and ends them
    absl::Span<const kernels::Bf16> hidden;  // [draws, hidden_size]; none where they are not wanted
  };
  // By StepRows, until the next call. Or the executor's error. wants_hidden: for the MTP layer.
  absl::StatusOr<absl::Span<const Result>> Run(absl::Span<const StepRows> step, bool wants_hidden);

 private:
  absl::Status Forward(bool wants_hidden);

  model::ModelExecutor& executor_;
  TokenDrawer& drawer_;
  std::vector<int32_t> tokens_;
  std::vector<model::Segment> segments_;
  std::vector<int32_t> logits_rows_;
  std::vector<float> logits_;  // grows no further than it is at first: it may be pinned
  bool is_pinned_ = false;
  std::vector<kernels::Bf16> hidden_;
  std::vector<Draw> drawn_;
  std::vector<Result> results_;
};

}  // namespace tandem::decode

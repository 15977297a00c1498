// Runs one forward pass over rows of several sequences and draws a token after each row.
//
// Buffers are kept from step to step. Knows rows, pages and sampling, nothing of requests. Tested by engine_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/model_executor.h"
#include "model/sampler.h"
#include "model/token_counts.h"
#include "model/token_mask/token_matcher.h"
#include "worker_shell/answer_constraints.h"
#include "worker_shell/sampling.h"

namespace tandem::decode {

// Consecutive generated tokens of one sequence whose KV is to be written.
struct StepRows {
  absl::Span<const uint32_t> tokens;
  int64_t first_position = 0;
  absl::Span<const int32_t> page_table;
  absl::Span<const int32_t> device_pages;  // as in model::Segment
  uint32_t choice = 0;
  const worker_shell::DrawRules* draws = nullptr;
  model::TokenCounts* counts = nullptr;    // of what comes before the rows; the rows are added, each before its draw
  model::TokenMatcher* matcher = nullptr;  // the same, where the answer is constrained
};

class StepRunner final {
 public:
  StepRunner(model::ModelExecutor& executor, worker_shell::AnswerConstraints& constraints)
      : executor_(executor), constraints_(constraints), sampler_(executor.vocab_size()) {}

  using Draw = absl::StatusOr<model::SampledToken>;
  // What is drawn after each row, in the order of the rows: one row's error is its own. Or the executor's error.
  absl::StatusOr<absl::Span<const Draw>> Run(absl::Span<const StepRows> step);

 private:
  Draw DrawAfter(const StepRows& rows, size_t row, absl::Span<const float> logits);

  model::ModelExecutor& executor_;
  worker_shell::AnswerConstraints& constraints_;
  model::Sampler sampler_;
  std::vector<int32_t> tokens_;
  std::vector<model::Segment> segments_;
  std::vector<int32_t> logits_rows_;
  std::vector<float> logits_;
  std::vector<Draw> drawn_;
};

}  // namespace tandem::decode

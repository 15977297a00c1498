// Runs one forward pass over rows of several sequences and draws a token after each row.
//
// Buffers are kept from step to step. Knows rows, pages and sampling, nothing of requests. Tested by engine_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/model_executor.h"
#include "model/sampler.h"
#include "proto/common.pb.h"

namespace tandem::decode {

// Consecutive generated tokens of one sequence whose KV is to be written.
struct StepRows {
  absl::Span<const uint32_t> tokens;
  int64_t first_position = 0;
  absl::Span<const int32_t> page_table;
  const proto::Sampling* sampling = nullptr;
};

class StepRunner final {
 public:
  explicit StepRunner(model::ModelExecutor& executor) : executor_(executor), sampler_(executor.vocab_size()) {}

  // The token drawn after each row, in the order of the rows. Or the executor's error.
  absl::StatusOr<absl::Span<const uint32_t>> Run(absl::Span<const StepRows> step);

 private:
  model::ModelExecutor& executor_;
  model::Sampler sampler_;
  std::vector<int32_t> tokens_;
  std::vector<model::Segment> segments_;
  std::vector<int32_t> logits_rows_;
  std::vector<float> logits_;
  std::vector<uint32_t> drawn_;
};

}  // namespace tandem::decode

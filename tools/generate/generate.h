// A whole request in one process: prompt ids in, generated ids out, through the same executor and sampler as the
// workers, with no request, page transfer or batch around them. What the cluster's answers are compared with.
// Tested by generate_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/model_executor.h"
#include "model/sampler.h"

namespace tandem::generate {

struct GenerateOptions {
  model::SamplingParams sampling;
  int max_new_tokens = 16;
  int chunk_size = 512;    // prompt rows of one forward pass; changes no token
  int min_new_tokens = 0;  // before as many, no stop id is drawn
  std::vector<int32_t> stop_token_ids;
  uint32_t choice = 0;  // whose noise
};

struct Generated {
  std::vector<int32_t> tokens;
  std::vector<model::TokenLogprobs> logprobs;  // of each token; empty unless options.sampling wants them
};

// At most max_new_tokens ids; a stop id, where one is drawn, is the last. The executor's pool must have
// PagesForTokens(prompt + max_new_tokens) pages, of which the sequence takes the first.
// INVALID_ARGUMENT for an empty prompt and for numbers out of range.
absl::StatusOr<Generated> Generate(model::ModelExecutor& executor, absl::Span<const int32_t> prompt,
                                   const GenerateOptions& options);

}  // namespace tandem::generate

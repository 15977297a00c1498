// What a request says about its draws, from its wire form into the sampler's terms, and log-probabilities on the way
// back. Both workers use it, so that a token does not depend on who draws it. Tested by sampling_test.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/logprobs.h"
#include "model/sampler.h"
#include "model/sampling_params.h"
#include "model/token_mask/constraint.h"
#include "proto/common.pb.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::worker_shell {

inline constexpr int kChoicesMax = 128;  // of one request; OpenAI's limit of n

model::SamplingParams SamplingFrom(const proto::Sampling& sampling);

// Made once for a request, so that a step copies nothing.
struct DrawRules {
  model::SamplingParams params;
  std::vector<int32_t> stop_tokens;
  int64_t first_stop_position = 0;                      // a token at an earlier position may not be a stop token
  std::shared_ptr<const model::Constraint> constraint;  // of each answer; null: none

  absl::Span<const int32_t> MaskedAt(int64_t position) const {
    return position < first_stop_position ? absl::MakeConstSpan(stop_tokens) : absl::Span<const int32_t>();
  }
};
// Without the constraint, which the worker prepares (answer_constraints.h).
DrawRules DrawRulesFrom(const proto::Sampling& sampling, const proto::Stopping& stopping, int64_t num_prompt_tokens);

// INVALID_ARGUMENT naming field, value and limit.
absl::Status ValidateDrawRules(const proto::Sampling& sampling, const proto::Stopping& stopping, int vocab_size);

proto::TopLogprobs TopLogprobsToProto(const model::TokenLogprobs& logprobs);
proto::FirstToken FirstTokenOf(int choice, const model::SampledToken& sampled, bool wants_logprobs);
// INVALID_ARGUMENT where the message is not what TopLogprobsToProto makes.
absl::StatusOr<model::TokenLogprobs> LogprobsFrom(float logprob, const proto::TopLogprobs& top);

}  // namespace tandem::worker_shell

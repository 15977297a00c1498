// Log-probabilities of tokens as clients see them: the log softmax of the logits as the model gave them, before
// penalties, biases, masks and temperature. So they say what the model thinks, whatever the request asked for.
//
// A pure function of the row: the mass is summed in fixed point (2^-44), exp and log are the kernels' own, so that the
// bits are the same on every machine, in every batch and on both workers. NaN counts as -inf.
// Tested by logprobs_test.cc (against the C library, properties) and sampler_golden_test.cc (NumPy vectors).
#pragma once

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "model/sampling_params.h"

namespace tandem::model {

// No logprob is lower: what the model holds for impossible can still be written as JSON. The value is OpenAI's.
inline constexpr float kLogprobMin = -9999.0f;

struct TokenLogprobs {
  float logprob = 0;  // of the token itself
  int num_top = 0;
  // The likeliest tokens, likeliest first, the lower id first among equals. Tokens of probability 0 are not listed.
  std::array<int32_t, kTopLogprobsMax> top_tokens = {};
  std::array<float, kTopLogprobsMax> top_logprobs = {};
  bool operator==(const TokenLogprobs&) const = default;
};

// logits: [vocab_size]. num_top: 0 to kTopLogprobsMax. Where no logit is above -inf, all tokens are equally likely.
TokenLogprobs LogprobsOf(absl::Span<const float> logits, int32_t token, int num_top);

}  // namespace tandem::model

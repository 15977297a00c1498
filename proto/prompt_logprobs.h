// How much a prompt's log-probabilities may take: they travel in one message, beside others that must not wait long.
// Tested by credit_test.cc.
#pragma once

#include <cstdint>

#include "proto/credit.h"

namespace tandem::proto {

inline constexpr int64_t kPromptLogprobsBytesMax = 512 * 1024;

// Of one token, as credit counts them. Bytes.
inline int64_t PromptLogprobBytes(int64_t num_top_logprobs) {
  return kLogprobCreditBytes +
         (num_top_logprobs > 0 ? kTopLogprobsCreditBytes + kTopLogprobCreditBytes * num_top_logprobs : 0);
}

// The most tokens of a prompt that may have theirs told.
inline int64_t PromptLogprobsMax(int64_t num_top_logprobs) {
  return kPromptLogprobsBytesMax / PromptLogprobBytes(num_top_logprobs);
}

}  // namespace tandem::proto

// What one message of a decode worker says of one choice's sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "router/openai/answer.h"
#include "router/tokenizer/token_id.h"

namespace tandem::router {

// What the worker says of the sequence's end in the same message as its last tokens.
enum class SequenceFinish { kNone, kStopToken, kLength };

struct GeneratedTokens {
  int choice = 0;
  int64_t first_position = 0;  // index of tokens[0] among the choice's generated tokens
  std::vector<TokenId> tokens;
  SequenceFinish finish = SequenceFinish::kNone;
  std::vector<float> logprobs;                         // of each token; empty unless asked for
  std::vector<std::vector<LikelyToken>> top_logprobs;  // of each token; empty unless asked for
  int64_t num_cached_prompt_tokens = 0;  // with the first token: of the prompt, that no worker had to compute
  std::shared_ptr<const PromptLogprobs> prompt_logprobs;  // with the first token of choice 0, where asked for
  DraftCounts drafts;                                     // of this attempt so far
};

// What is known of a choice when its prompt is given to other workers.
struct ResumedChoice {
  absl::Span<const TokenId> tokens;  // every accepted one; of a choice that has ended none
  bool has_ended = false;
};

}  // namespace tandem::router

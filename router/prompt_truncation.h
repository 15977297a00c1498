// What process.allow_auto_truncate does to a prompt that leaves no room for its answer: it loses tokens from the left,
// where the oldest turns stand. Its first token, the begin of sentence, stays. Pure. Tested by
// prompt_truncation_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "router/tokenizer/token_id.h"

namespace tandem::router {

// Nothing happens to a prompt that leaves room for at least one token of answer. Another one is cut so that
// max_new_tokens fit behind it, at most half of the context; a quarter of it where no max_new_tokens is given.
// context_length: prompt and answer together, at least 4. Returns how many tokens were dropped.
int64_t TruncatePrompt(int64_t context_length, std::optional<int64_t> max_new_tokens, std::vector<TokenId>* prompt);

}  // namespace tandem::router

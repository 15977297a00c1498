#include "router/prompt_truncation.h"

#include <algorithm>

namespace tandem::router {

int64_t TruncatePrompt(int64_t context_length, std::optional<int64_t> max_new_tokens, std::vector<TokenId>* prompt) {
  const auto num_tokens = static_cast<int64_t>(prompt->size());
  if (num_tokens < context_length) return 0;
  const int64_t room = std::clamp<int64_t>(max_new_tokens.value_or(context_length / 4), 1, context_length / 2);
  const int64_t num_dropped = num_tokens - (context_length - room);
  prompt->erase(prompt->begin() + 1, prompt->begin() + 1 + num_dropped);
  return num_dropped;
}

}  // namespace tandem::router

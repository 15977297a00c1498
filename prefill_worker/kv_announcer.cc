#include "prefill_worker/kv_announcer.h"

#include "base/check.h"
#include "kvcache/kv_layout.h"

namespace tandem::prefill {

PageRange PagesCompletedBy(int64_t chunk_begin, int64_t chunk_end, int64_t num_prompt_tokens) {
  TANDEM_CHECK(0 <= chunk_begin && chunk_begin < chunk_end && chunk_end <= num_prompt_tokens,
               "a chunk lies outside its prompt");
  const bool is_last_chunk = chunk_end == num_prompt_tokens;
  return {.begin = static_cast<int>(chunk_begin / kvcache::kPageTokens),
          .end = is_last_chunk ? kvcache::PagesForTokens(num_prompt_tokens)
                               : static_cast<int>(chunk_end / kvcache::kPageTokens)};
}

}  // namespace tandem::prefill

// Decides when a layer's pages may be announced to decode: the single owner of that decision.
//
// A page of a layer may be announced once every record of it that the prompt has is in the pool: full pages after the
// chunk and the layer that wrote their last token, the partial last page with the prompt's last chunk. The answer
// depends on the chunk alone, so the announcer holds no state; over a prompt's chunks the ranges are disjoint,
// ascending and cover every page exactly once, whatever the chunk sizes.
// Tested by kv_announcer_test.cc (all chunkings of small prompts, random ones of large prompts).
#pragma once

#include <cstdint>

namespace tandem::prefill {

// Logical pages [begin, end) of one prompt.
struct PageRange {
  int begin = 0;
  int end = 0;

  bool empty() const { return begin == end; }
  bool operator==(const PageRange&) const = default;
};

// The pages that become complete in every layer by the chunk of prompt positions [chunk_begin, chunk_end).
// 0 <= chunk_begin < chunk_end <= num_prompt_tokens.
PageRange PagesCompletedBy(int64_t chunk_begin, int64_t chunk_end, int64_t num_prompt_tokens);

}  // namespace tandem::prefill

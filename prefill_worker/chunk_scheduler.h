// Decides how many prompt tokens of which requests the next prefill step computes.
//
// The scheduler is a pure function: Plan() reads a snapshot and returns the chunks; the engine runs them. It owns no
// memory, no thread and no clock.
//
// Policy: the oldest request is guaranteed half of the step (rounded up), the rest goes to whoever has the least left.
//   - Equal prompts are served in order of arrival, which is best for their mean time to first token.
//   - A short prompt that arrives behind a long one gets half of every step at once: it never waits for the long one.
//   - A long prompt cannot starve: whoever is oldest moves on by half a step, and everybody becomes the oldest.
// Invariants: chunks are within the token budget; no chunk is empty or longer than what is left; the budget is used up
// unless there is too little work or too many requests for one step.
// Tested by chunk_scheduler_test.cc (properties over random queues) and //tests/sim (every request ends).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem::prefill {

struct ChunkLimits {
  int num_tokens_max = 0;  // chunked_prefill_size: rows of one step, at least 1
  int num_chunks_max = 0;  // requests in one step, at least 1
};

struct PlannedChunk {
  int request_index = 0;  // into the snapshot
  int num_tokens = 0;     // at least 1

  bool operator==(const PlannedChunk&) const = default;
};

class ChunkScheduler final {
 public:
  explicit ChunkScheduler(const ChunkLimits& limits);

  // num_tokens_left[i]: prompt tokens of request i that are not computed yet; oldest request first; zeros are skipped.
  // Chunks come in ascending request_index. Never fails: no chunk is a valid answer. O(n log n).
  std::vector<PlannedChunk> Plan(absl::Span<const int64_t> num_tokens_left) const;

 private:
  const ChunkLimits limits_;
};

}  // namespace tandem::prefill

#include "prefill_worker/chunk_scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::prefill {

ChunkScheduler::ChunkScheduler(const ChunkLimits& limits) : limits_(limits) {
  TANDEM_CHECK(limits.num_tokens_max >= 1, "a prefill step needs a budget of at least one token");
  TANDEM_CHECK(limits.num_chunks_max >= 1, "a prefill step needs room for at least one chunk");
}

std::vector<PlannedChunk> ChunkScheduler::Plan(absl::Span<const int64_t> num_tokens_left) const {
  std::vector<PlannedChunk> chunks;
  for (size_t i = 0; i < num_tokens_left.size(); ++i) {
    if (num_tokens_left[i] > 0) chunks.push_back({.request_index = static_cast<int>(i)});
  }
  if (chunks.empty()) return chunks;

  int budget = limits_.num_tokens_max;
  const auto grant = [&](PlannedChunk& chunk, int num_tokens_max) {
    const int64_t left = num_tokens_left[chunk.request_index] - chunk.num_tokens;
    const int num_tokens = static_cast<int>(std::min<int64_t>(left, num_tokens_max));
    chunk.num_tokens += num_tokens;
    budget -= num_tokens;
  };
  grant(chunks.front(), (budget + 1) / 2);

  // Stable: equal ones stay in order of arrival. The oldest competes with what its share has left over.
  const auto left_over = [&](const PlannedChunk& chunk) {
    return num_tokens_left[chunk.request_index] - chunk.num_tokens;
  };
  std::vector<PlannedChunk> planned = {chunks.front()};
  std::stable_sort(chunks.begin(), chunks.end(),
                   [&](const PlannedChunk& a, const PlannedChunk& b) { return left_over(a) < left_over(b); });
  for (PlannedChunk& chunk : chunks) {
    if (budget == 0) break;
    const bool is_oldest = chunk.request_index == planned.front().request_index;
    if (is_oldest) {
      grant(planned.front(), budget);
    } else if (static_cast<int>(planned.size()) < limits_.num_chunks_max) {
      grant(chunk, budget);
      planned.push_back(chunk);
    }
  }
  std::sort(planned.begin(), planned.end(),
            [](const PlannedChunk& a, const PlannedChunk& b) { return a.request_index < b.request_index; });
  return planned;
}

}  // namespace tandem::prefill

#include "decode_worker/stopping.h"

#include <algorithm>

namespace tandem::decode {

proto::FinishReason FinishAfter(uint32_t token, int64_t num_generated, int64_t num_prompt_tokens,
                                const proto::Stopping& stopping, int64_t context_length_max) {
  const auto& stop_ids = stopping.stop_token_ids();
  if (std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end()) return proto::FINISH_REASON_STOP;
  if (num_generated >= stopping.max_new_tokens()) return proto::FINISH_REASON_LENGTH;
  if (num_prompt_tokens + num_generated >= context_length_max) return proto::FINISH_REASON_LENGTH;
  return proto::FINISH_REASON_UNSPECIFIED;
}

}  // namespace tandem::decode

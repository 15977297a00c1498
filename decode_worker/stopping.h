// When a sequence ends below the text level; stop strings are the router's. Tested by stopping_test.cc.
#pragma once

#include <cstdint>

#include "proto/common.pb.h"

namespace tandem::decode {

// Why the sequence ends with `token`, its last of num_generated tokens (at least 1), or FINISH_REASON_UNSPECIFIED.
// A stop token id wins over a length. context_length_max bounds prompt and generated tokens together.
proto::FinishReason FinishAfter(uint32_t token, int64_t num_generated, int64_t num_prompt_tokens,
                                const proto::Stopping& stopping, int64_t context_length_max);

}  // namespace tandem::decode

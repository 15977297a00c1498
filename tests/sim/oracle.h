// What a request must answer: the whole model in one place, one token after another, one sequence alone. No engine, no
// scheduler, no transfer, no chunk: the definition against which workers are checked.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/common.pb.h"
#include "tests/sim/hash_model.h"

namespace tandem::sim {

struct OracleRequest {
  std::vector<uint32_t> prompt_tokens;
  proto::Sampling sampling;
  proto::Stopping stopping;
};

// All generated tokens, the stop token included. context_length_max bounds prompt and generated tokens together.
std::vector<uint32_t> OracleTokens(const OracleRequest& request, const HashModelOptions& model, int num_layers,
                                   int64_t context_length_max);

}  // namespace tandem::sim

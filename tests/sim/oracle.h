// What a request must answer: the whole model in one place, one token after another, one sequence alone. No engine, no
// scheduler, no transfer, no chunk: the definition against which workers are checked.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "model/logprobs.h"
#include "proto/common.pb.h"
#include "tests/sim/hash_model.h"

namespace tandem::sim {

struct OracleRequest {
  std::vector<uint32_t> prompt_tokens;
  proto::Sampling sampling;
  proto::Stopping stopping;
};

struct OracleAnswer {
  std::vector<uint32_t> tokens;                // the stop token included
  std::vector<model::TokenLogprobs> logprobs;  // of each token; empty unless wanted
};

// What one choice answers. context_length_max bounds prompt and generated tokens together.
OracleAnswer AskOracle(const OracleRequest& request, const HashModelOptions& model, int num_layers,
                       int64_t context_length_max, uint32_t choice = 0);
// Its tokens.
std::vector<uint32_t> OracleTokens(const OracleRequest& request, const HashModelOptions& model, int num_layers,
                                   int64_t context_length_max, uint32_t choice = 0);

}  // namespace tandem::sim

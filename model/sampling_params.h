// What a request says about how its tokens are drawn, and what may be said. The meaning of each: model/sampler.h.
// Tested by sampling_params_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace tandem::model {

inline constexpr float kBanBias = -100.0f;     // a bias this low: the token is never drawn
inline constexpr int kTopLogprobsMax = 20;     // likeliest tokens listed beside one token
inline constexpr size_t kLogitBiasMax = 1024;  // entries of one request: each is looked at for every token

struct LogitBias {
  int32_t token = 0;
  float bias = 0;
  bool operator==(const LogitBias&) const = default;
};

struct SamplingParams {
  float temperature = 1.0f;  // 0 to 100; 0 = argmax
  float top_p = 1.0f;        // above 0 to 1; 1 = off
  int top_k = 0;             // 0 = off
  uint64_t seed = 0;
  float min_p = 0.0f;                      // 0 to 1; 0 = off
  float repetition_penalty = 1.0f;         // above 0 to 100; 1 = off
  float frequency_penalty = 0.0f;          // -2 to 2; 0 = off
  float presence_penalty = 0.0f;           // -2 to 2; 0 = off
  std::vector<LogitBias> logit_bias = {};  // -100 to 100 each; kBanBias bans
  bool wants_logprobs = false;
  int num_top_logprobs = 0;  // 0 to kTopLogprobsMax, only with wants_logprobs

  // True where a draw depends on which tokens came before (TokenCounts).
  bool HasPenalties() const { return repetition_penalty != 1.0f || frequency_penalty != 0 || presence_penalty != 0; }
  bool operator==(const SamplingParams&) const = default;
};

// INVALID_ARGUMENT naming field, value and range.
absl::Status ValidateSamplingParams(const SamplingParams& params, int vocab_size);

}  // namespace tandem::model

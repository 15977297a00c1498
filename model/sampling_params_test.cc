// Proves that each parameter's range holds at both ends and that a refusal names field, value and range.
#include "model/sampling_params.h"

#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace tandem::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kVocabSize = 100;

TEST(ValidateSamplingParamsTest, TakesTheEndsOfEveryRange) {
  const SamplingParams cases[] = {
      {},
      {.temperature = 0, .top_p = 0.01f, .top_k = 1},
      {.temperature = 100, .top_p = 1, .min_p = 1, .repetition_penalty = 100},
      {.min_p = 0, .repetition_penalty = 1e-30f, .frequency_penalty = -2, .presence_penalty = 2},
      {.frequency_penalty = 2, .presence_penalty = -2, .logit_bias = {{0, -100}, {kVocabSize - 1, 100}}},
      {.wants_logprobs = true, .num_top_logprobs = 20},
      {.logit_bias = std::vector<LogitBias>(kLogitBiasMax)},
  };
  for (const SamplingParams& params : cases) {
    EXPECT_TRUE(ValidateSamplingParams(params, kVocabSize).ok()) << ValidateSamplingParams(params, kVocabSize);
  }
}

TEST(ValidateSamplingParamsTest, NamesFieldValueAndRange) {
  const std::pair<SamplingParams, const char*> cases[] = {
      {{.temperature = -1}, "temperature is -1, allowed 0 to 100"},
      {{.temperature = kNan}, "temperature is nan"},
      {{.temperature = kInfinity}, "temperature is inf"},
      {{.top_p = 0}, "top_p is 0, allowed above 0 to 1"},
      {{.top_p = 1.5f}, "top_p is 1.5"},
      {{.top_p = kNan}, "top_p is nan"},
      {{.top_k = -1}, "top_k is -1, at least 0"},
      {{.min_p = -0.1f}, "min_p is -0.1, allowed 0 to 1"},
      {{.min_p = 1.1f}, "min_p is 1.1"},
      {{.min_p = kNan}, "min_p is nan"},
      {{.repetition_penalty = 0}, "repetition_penalty is 0, allowed above 0 to 100"},
      {{.repetition_penalty = kInfinity}, "repetition_penalty is inf"},
      {{.frequency_penalty = 2.5f}, "frequency_penalty is 2.5, allowed -2 to 2"},
      {{.presence_penalty = kNan}, "presence_penalty is nan, allowed -2 to 2"},
      {{.logit_bias = {{kVocabSize, 1}}}, "logit_bias names token 100, outside the vocabulary of 100"},
      {{.logit_bias = {{-1, 1}}}, "logit_bias names token 4294967295, outside"},
      {{.logit_bias = {{7, 100.5f}}}, "logit_bias of token 7 is 100.5, allowed -100 to 100"},
      {{.logit_bias = {{7, kNan}}}, "logit_bias of token 7 is nan"},
      {{.logit_bias = std::vector<LogitBias>(kLogitBiasMax + 1)}, "logit_bias has 1025 entries, at most 1024"},
      {{.wants_logprobs = true, .num_top_logprobs = 21}, "num_top_logprobs is 21, allowed 0 to 20"},
      {{.wants_logprobs = true, .num_top_logprobs = -1}, "num_top_logprobs is -1"},
      {{.num_top_logprobs = 3}, "num_top_logprobs is 3 though wants_logprobs is not set"},
  };
  for (const auto& [params, message] : cases) {
    const absl::Status status = ValidateSamplingParams(params, kVocabSize);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_TRUE(absl::StrContains(status.message(), message)) << status;
  }
}

}  // namespace
}  // namespace tandem::model

// Proves that every field of the wire reaches the sampler, that absent ones are off, and that what makes no sense is
// refused by name.
#include "worker_shell/sampling.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::worker_shell {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kVocabSize = 100;

proto::Stopping Stopping(uint32_t max_new_tokens, uint32_t min_new_tokens = 0) {
  proto::Stopping stopping;
  stopping.set_max_new_tokens(max_new_tokens);
  stopping.set_min_new_tokens(min_new_tokens);
  return stopping;
}

TEST(SamplingFromTest, CarriesEveryField) {
  proto::Sampling sampling;
  sampling.set_temperature(0.5f);
  sampling.set_top_p(0.25f);
  sampling.set_top_k(7);
  sampling.set_seed(uint64_t{1} << 63);
  sampling.set_min_p(0.125f);
  sampling.set_repetition_penalty(1.5f);
  sampling.set_frequency_penalty(-1);
  sampling.set_presence_penalty(2);
  proto::LogitBias& bias = *sampling.add_logit_bias();
  bias.set_token(9);
  bias.set_bias(-3);
  sampling.set_wants_logprobs(true);
  sampling.set_num_top_logprobs(4);
  const model::SamplingParams expected{.temperature = 0.5f,
                                       .top_p = 0.25f,
                                       .top_k = 7,
                                       .seed = uint64_t{1} << 63,
                                       .min_p = 0.125f,
                                       .repetition_penalty = 1.5f,
                                       .frequency_penalty = -1,
                                       .presence_penalty = 2,
                                       .logit_bias = {{9, -3}},
                                       .wants_logprobs = true,
                                       .num_top_logprobs = 4};
  EXPECT_EQ(SamplingFrom(sampling), expected);
}

TEST(SamplingFromTest, WhatIsNotSetIsOff) {
  proto::Sampling sampling;
  sampling.set_top_p(1);
  EXPECT_EQ(SamplingFrom(sampling), (model::SamplingParams{.temperature = 0}));
  EXPECT_FALSE(SamplingFrom(sampling).HasPenalties());
}

TEST(DrawRulesTest, StopTokensAreMaskedUntilTheLeastNumberOfTokensIsThere) {
  proto::Stopping stopping = Stopping(20, 3);
  stopping.add_stop_token_ids(5);
  stopping.add_stop_token_ids(6);
  const DrawRules rules = DrawRulesFrom({}, stopping, /*num_prompt_tokens=*/10);
  // Tokens at positions 10, 11 and 12 are the first three; the fourth may end it.
  EXPECT_THAT(rules.MaskedAt(10), ElementsAre(5, 6));
  EXPECT_THAT(rules.MaskedAt(12), ElementsAre(5, 6));
  EXPECT_THAT(rules.MaskedAt(13), IsEmpty());
  EXPECT_THAT(DrawRulesFrom({}, Stopping(20), 10).MaskedAt(10), IsEmpty());
}

TEST(ValidateDrawRulesTest, RefusesByName) {
  proto::Sampling sampling;
  sampling.set_top_p(1);
  EXPECT_TRUE(ValidateDrawRules(sampling, Stopping(5, 5), kVocabSize).ok());
  EXPECT_THAT(std::string(ValidateDrawRules(sampling, Stopping(5, 6), kVocabSize).message()),
              HasSubstr("min_new_tokens is 6, at most max_new_tokens 5"));
  proto::Stopping stopping = Stopping(5);
  stopping.add_stop_token_ids(kVocabSize);
  EXPECT_THAT(std::string(ValidateDrawRules(sampling, stopping, kVocabSize).message()),
              HasSubstr("stop_token_ids names token 100, outside the vocabulary of 100"));
  sampling.set_wants_logprobs(true);
  sampling.set_num_top_logprobs(4'000'000'000);
  const absl::Status many = ValidateDrawRules(sampling, Stopping(5), kVocabSize);
  EXPECT_EQ(many.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(many.message()), HasSubstr("num_top_logprobs is "));
}

TEST(LogprobsFromTest, ComeBackAsTheyWent) {
  model::TokenLogprobs logprobs{.logprob = -1.5f, .num_top = 2};
  logprobs.top_tokens[0] = 7;
  logprobs.top_tokens[1] = 3;
  logprobs.top_logprobs[0] = -0.5f;
  logprobs.top_logprobs[1] = -1.5f;
  EXPECT_EQ(*LogprobsFrom(-1.5f, TopLogprobsToProto(logprobs)), logprobs);
}

TEST(LogprobsFromTest, RefusesWhatIsNoList) {
  proto::TopLogprobs uneven;
  uneven.add_tokens(1);
  EXPECT_EQ(LogprobsFrom(0, uneven).status().code(), absl::StatusCode::kInvalidArgument);
  proto::TopLogprobs many;
  for (int i = 0; i < 21; ++i) {
    many.add_tokens(i);
    many.add_logprobs(0);
  }
  EXPECT_EQ(LogprobsFrom(0, many).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::worker_shell

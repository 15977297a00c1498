#include "worker_shell/sampling.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::worker_shell {

model::SamplingParams SamplingFrom(const proto::Sampling& sampling) {
  model::SamplingParams params{
      .temperature = sampling.temperature(),
      .top_p = sampling.top_p(),
      .top_k = sampling.top_k(),
      .seed = sampling.seed(),
      .min_p = sampling.min_p(),
      .repetition_penalty = sampling.repetition_penalty() == 0 ? 1.0f : sampling.repetition_penalty(),
      .frequency_penalty = sampling.frequency_penalty(),
      .presence_penalty = sampling.presence_penalty(),
      .wants_logprobs = sampling.wants_logprobs(),
      .num_top_logprobs = static_cast<int>(std::min<uint32_t>(sampling.num_top_logprobs(), 1u << 30))};
  params.logit_bias.reserve(sampling.logit_bias_size());
  for (const proto::LogitBias& entry : sampling.logit_bias()) {
    params.logit_bias.push_back({.token = static_cast<int32_t>(entry.token()), .bias = entry.bias()});
  }
  return params;
}

DrawRules DrawRulesFrom(const proto::Sampling& sampling, const proto::Stopping& stopping, int64_t num_prompt_tokens) {
  return {.params = SamplingFrom(sampling),
          .stop_tokens = {stopping.stop_token_ids().begin(), stopping.stop_token_ids().end()},
          .first_stop_position = num_prompt_tokens + stopping.min_new_tokens()};
}

absl::Status ValidateDrawRules(const proto::Sampling& sampling, const proto::Stopping& stopping, int vocab_size) {
  RETURN_IF_ERROR(model::ValidateSamplingParams(SamplingFrom(sampling), vocab_size));
  for (const uint32_t token : stopping.stop_token_ids()) {
    if (token >= static_cast<uint32_t>(vocab_size)) {
      return absl::InvalidArgumentError(
          absl::StrCat("stop_token_ids names token ", token, ", outside the vocabulary of ", vocab_size));
    }
  }
  if (stopping.min_new_tokens() > stopping.max_new_tokens()) {
    return absl::InvalidArgumentError(absl::StrCat("min_new_tokens is ", stopping.min_new_tokens(),
                                                   ", at most max_new_tokens ", stopping.max_new_tokens()));
  }
  return absl::OkStatus();
}

proto::TopLogprobs TopLogprobsToProto(const model::TokenLogprobs& logprobs) {
  proto::TopLogprobs top;
  for (int place = 0; place < logprobs.num_top; ++place) {
    top.add_tokens(static_cast<uint32_t>(logprobs.top_tokens[place]));
    top.add_logprobs(logprobs.top_logprobs[place]);
  }
  return top;
}

proto::FirstToken FirstTokenOf(int choice, const model::SampledToken& sampled, bool wants_logprobs) {
  proto::FirstToken token;
  token.set_choice(static_cast<uint32_t>(choice));
  token.set_token(static_cast<uint32_t>(sampled.token));
  if (wants_logprobs) {
    token.set_logprob(sampled.logprobs.logprob);
    if (sampled.logprobs.num_top > 0) *token.mutable_top_logprobs() = TopLogprobsToProto(sampled.logprobs);
  }
  return token;
}

absl::StatusOr<model::TokenLogprobs> LogprobsFrom(float logprob, const proto::TopLogprobs& top) {
  if (top.tokens_size() != top.logprobs_size() || top.tokens_size() > model::kTopLogprobsMax) {
    return absl::InvalidArgumentError(absl::StrCat("top_logprobs has ", top.tokens_size(), " tokens and ",
                                                   top.logprobs_size(), " numbers, at most ", model::kTopLogprobsMax));
  }
  model::TokenLogprobs result{.logprob = logprob, .num_top = top.tokens_size()};
  for (int place = 0; place < result.num_top; ++place) {
    result.top_tokens[place] = static_cast<int32_t>(top.tokens(place));
    result.top_logprobs[place] = top.logprobs(place);
  }
  return result;
}

}  // namespace tandem::worker_shell

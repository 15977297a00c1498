#include "model/sampling_params.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace tandem::model {
namespace {

absl::Status CheckRange(absl::string_view field, float value, float min, float max) {
  if (value >= min && value <= max) return absl::OkStatus();  // false for NaN
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", allowed ", min, " to ", max));
}

absl::Status CheckRangeAbove(absl::string_view field, float value, float above, float max) {
  if (value > above && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", allowed above ", above, " to ", max));
}

absl::Status ValidateLogitBias(const std::vector<LogitBias>& logit_bias, int vocab_size) {
  if (logit_bias.size() > kLogitBiasMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("logit_bias has ", logit_bias.size(), " entries, at most ", kLogitBiasMax));
  }
  for (const LogitBias& entry : logit_bias) {
    if (entry.token < 0 || entry.token >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat("logit_bias names token ", static_cast<uint32_t>(entry.token),
                                                     ", outside the vocabulary of ", vocab_size));
    }
    if (!(entry.bias >= kBanBias && entry.bias <= -kBanBias)) {
      return absl::InvalidArgumentError(absl::StrCat("logit_bias of token ", entry.token, " is ", entry.bias,
                                                     ", allowed ", kBanBias, " to ", -kBanBias));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateSamplingParams(const SamplingParams& params, int vocab_size) {
  RETURN_IF_ERROR(CheckRange("temperature", params.temperature, 0, 100));
  RETURN_IF_ERROR(CheckRangeAbove("top_p", params.top_p, 0, 1));
  if (params.top_k < 0) {
    return absl::InvalidArgumentError(absl::StrCat("top_k is ", params.top_k, ", at least 0"));
  }
  RETURN_IF_ERROR(CheckRange("min_p", params.min_p, 0, 1));
  RETURN_IF_ERROR(CheckRangeAbove("repetition_penalty", params.repetition_penalty, 0, 100));
  RETURN_IF_ERROR(CheckRange("frequency_penalty", params.frequency_penalty, -2, 2));
  RETURN_IF_ERROR(CheckRange("presence_penalty", params.presence_penalty, -2, 2));
  RETURN_IF_ERROR(ValidateLogitBias(params.logit_bias, vocab_size));
  if (params.num_top_logprobs < 0 || params.num_top_logprobs > kTopLogprobsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_top_logprobs is ", params.num_top_logprobs, ", allowed 0 to ", kTopLogprobsMax));
  }
  if (params.num_top_logprobs > 0 && !params.wants_logprobs) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_top_logprobs is ", params.num_top_logprobs, " though wants_logprobs is not set"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::model

#include "model/logprobs.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "kernels/portable_math.h"
#include "model/fixed_point_mass.h"

namespace tandem::model {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Inserts a token behind all that are at least as likely; ids come in ascending order.
void TakeIfLikely(int32_t token, absl::Span<const float> logits, int num_top_max, TokenLogprobs& result) {
  const double logit = OrMinusInfinity(logits[token]);
  if (logit == kMinusInfinity) return;
  const auto logit_at = [&](int place) { return OrMinusInfinity(logits[result.top_tokens[place]]); };
  if (result.num_top == num_top_max && logit_at(num_top_max - 1) >= logit) return;
  if (result.num_top < num_top_max) ++result.num_top;
  int place = result.num_top - 1;
  for (; place > 0 && logit_at(place - 1) < logit; --place) result.top_tokens[place] = result.top_tokens[place - 1];
  result.top_tokens[place] = token;
}

}  // namespace

TokenLogprobs LogprobsOf(absl::Span<const float> logits, int32_t token, int num_top) {
  TANDEM_CHECK(num_top >= 0 && num_top <= kTopLogprobsMax && token >= 0 && static_cast<size_t>(token) < logits.size() &&
                   logits.size() <= kMassTokensMax,
               "logprobs of a token of these logits");
  TokenLogprobs result;
  double max_logit = kMinusInfinity;
  for (const float logit : logits) max_logit = std::max(max_logit, OrMinusInfinity(logit));
  uint64_t mass = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    mass += Weight(OrMinusInfinity(logits[i]), max_logit);
    if (num_top > 0) TakeIfLikely(static_cast<int32_t>(i), logits, num_top, result);
  }
  const double log_mass = kernels::Log(static_cast<double>(mass) / kMassOne);
  const auto logprob_of = [&](int32_t id) {
    const double logit = OrMinusInfinity(logits[id]);
    const double difference = logit == max_logit ? 0.0 : logit - max_logit;
    return static_cast<float>(std::max(difference - log_mass, static_cast<double>(kLogprobMin)));
  };
  result.logprob = logprob_of(token);
  for (int place = 0; place < result.num_top; ++place) {
    result.top_logprobs[place] = logprob_of(result.top_tokens[place]);
  }
  return result;
}

}  // namespace tandem::model

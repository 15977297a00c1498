#include "model/sampler.h"

#include <algorithm>
#include <limits>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/portable_math.h"
#include "model/fixed_point_mass.h"
#include "model/philox.h"

namespace tandem::model {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
// Above the largest noise: -log(-log(1 - 2^-53)) = 36.74.
constexpr double kNoiseMax = 37.0;

bool IsAdjusted(const SampleInput& input) {
  return input.params.HasPenalties() || !input.params.logit_bias.empty() || !input.masked_tokens.empty();
}

}  // namespace

double GumbelNoise(uint64_t seed, uint32_t choice, int64_t position, int32_t token) {
  const std::array<uint32_t, 4> words =
      Philox4x32(seed, {static_cast<uint32_t>(token), static_cast<uint32_t>(position),
                        static_cast<uint32_t>(static_cast<uint64_t>(position) >> 32), choice});
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 12;
  const double uniform = (static_cast<double>(bits) + 0.5) * 0x1p-52;  // exact, and never 0 or 1
  return -kernels::Log(-kernels::Log(uniform));
}

Sampler::Sampler(int vocab_size) : vocab_size_(vocab_size) {
  TANDEM_CHECK(vocab_size > 0 && vocab_size <= kMassTokensMax, "the vocabulary's mass fits 64 bits");
  kept_.reserve(vocab_size);
}

// In order of probability: the higher z first, the lower id first among equals.
bool Sampler::ComesAfter(const Candidate& a, const Candidate& b) { return a.z != b.z ? a.z < b.z : a.token > b.token; }

void Sampler::Collect(const SampleInput& input) {
  kept_.clear();
  for (size_t i = 0; i < input.logits.size(); ++i) {
    const auto token = static_cast<int32_t>(i);
    const bool may_be_drawn = input.allowed == nullptr || input.allowed->Allows(token);
    kept_.push_back({may_be_drawn ? OrMinusInfinity(input.logits[i]) : kMinusInfinity, 0, token});
  }
}

// Every token is still at the place of its id.
void Sampler::Adjust(const SampleInput& input) {
  const SamplingParams& params = input.params;
  if (params.HasPenalties()) {
    for (const TokenCounts::Entry& entry : input.counts.entries()) {
      double& z = kept_[entry.token].z;
      if (entry.is_in_prompt || entry.num_generated > 0) {
        z = z > 0 ? z / params.repetition_penalty : z * params.repetition_penalty;
      }
      if (entry.num_generated > 0) {
        z -= static_cast<double>(params.frequency_penalty) * entry.num_generated;
        z -= params.presence_penalty;
      }
    }
  }
  for (const LogitBias& entry : params.logit_bias) {
    kept_[entry.token].z += entry.bias <= kBanBias ? kMinusInfinity : entry.bias;
  }
  for (const int32_t token : input.masked_tokens) kept_[token].z = kMinusInfinity;
}

void Sampler::KeepTopK(int top_k) {
  if (top_k == 0 || top_k >= static_cast<int>(kept_.size())) return;
  std::nth_element(kept_.begin(), kept_.begin() + top_k, kept_.end(),
                   [](const Candidate& a, const Candidate& b) { return ComesAfter(b, a); });
  kept_.resize(top_k);
}

void Sampler::KeepTopP(float top_p) {
  if (top_p >= 1.0f) return;
  uint64_t kept_mass = 0;
  for (const Candidate& candidate : kept_) kept_mass += candidate.weight;
  const uint64_t share = static_cast<uint64_t>(static_cast<double>(top_p) * 0x1p32);
  const uint64_t wanted = static_cast<uint64_t>(static_cast<unsigned __int128>(kept_mass) * share >> 32);
  // A heap gives the prefix without sorting the rest; it grows at the back of kept_.
  std::make_heap(kept_.begin(), kept_.end(), ComesAfter);
  uint64_t mass = 0;
  size_t num_left = kept_.size();
  do {
    std::pop_heap(kept_.begin(), kept_.begin() + num_left, ComesAfter);
    mass += kept_[--num_left].weight;
  } while (mass < wanted && num_left > 0);
  kept_.erase(kept_.begin(), kept_.begin() + num_left);
}

// The likeliest token weighs exactly 1.
void Sampler::KeepMinP(float min_p) {
  if (min_p == 0) return;
  const uint64_t weight_min = static_cast<uint64_t>(static_cast<double>(min_p) * kMassOne);
  std::erase_if(kept_, [weight_min](const Candidate& candidate) { return candidate.weight < weight_min; });
}

int32_t Sampler::Draw(const SampleInput& input) const {
  const Candidate* best = nullptr;
  double best_score = kMinusInfinity;
  for (const Candidate& candidate : kept_) {
    // No noise can lift it, and equal scores go to the lower id: the order of kept_ decides nothing.
    if (best != nullptr && candidate.z + kNoiseMax < best_score) continue;
    const double score = candidate.z + GumbelNoise(input.params.seed, input.choice, input.position, candidate.token);
    const bool is_better =
        best == nullptr || score > best_score || (score == best_score && candidate.token < best->token);
    if (is_better) {
      best = &candidate;
      best_score = score;
    }
  }
  return best->token;
}

absl::Status Sampler::NothingLeft(const SampleInput& input) const {
  const bool has_logit =
      absl::c_any_of(input.logits, [](float logit) { return OrMinusInfinity(logit) != kMinusInfinity; });
  if (has_logit && input.allowed != nullptr) {
    const std::string what = absl::StrCat("the answer's constraint allows ", input.allowed->num_allowed(),
                                          " tokens at position ", input.position, ", ");
    const bool is_requests = input.allowed->num_allowed() > 0 && IsAdjusted(input);
    return is_requests ? absl::InvalidArgumentError(absl::StrCat(what, "logit_bias and masked stop tokens leave none"))
                       : absl::InternalError(absl::StrCat(what, "none of which can be drawn"));
  }
  if (has_logit) {
    return absl::InvalidArgumentError(
        absl::StrCat("logit_bias and masked stop tokens leave no token to draw at position ", input.position));
  }
  return absl::InternalError(
      absl::StrCat("the model gave no logit above -inf for position ", input.position, ", all are NaN or -inf"));
}

absl::StatusOr<SampledToken> Sampler::Sample(const SampleInput& input) {
  const SamplingParams& params = input.params;
  TANDEM_CHECK(input.logits.size() == vocab_size_, "logits of this sampler's vocabulary");
  TANDEM_CHECK(input.allowed == nullptr || input.allowed->vocab_size() == static_cast<int>(vocab_size_),
               "a mask of this sampler's vocabulary");
  Collect(input);
  if (IsAdjusted(input)) Adjust(input);
  std::erase_if(kept_, [](const Candidate& candidate) { return candidate.z == kMinusInfinity; });
  if (kept_.empty()) return NothingLeft(input);

  SampledToken sampled;
  if (params.temperature == 0) {
    sampled.token = absl::c_max_element(kept_, ComesAfter)->token;
  } else {
    for (Candidate& candidate : kept_) candidate.z /= params.temperature;
    KeepTopK(params.top_k);
    if (params.top_p < 1.0f || params.min_p > 0) {
      const double max_z = absl::c_max_element(kept_, ComesAfter)->z;
      for (Candidate& candidate : kept_) candidate.weight = Weight(candidate.z, max_z);
      KeepTopP(params.top_p);
      KeepMinP(params.min_p);
    }
    sampled.token = Draw(input);
  }
  if (params.wants_logprobs) sampled.logprobs = LogprobsOf(input.logits, sampled.token, params.num_top_logprobs);
  return sampled;
}

}  // namespace tandem::model

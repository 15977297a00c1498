#include "model/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/portable_math.h"
#include "model/philox.h"

namespace tandem::model {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
// A weight is at most 2^44, so 2^19 tokens sum to less than 2^64.
constexpr double kOne = 0x1p44;
constexpr int kVocabMax = 1 << 19;
// Above the largest noise: -log(-log(1 - 2^-53)) = 36.74.
constexpr double kNoiseMax = 37.0;

double OrMinusInfinity(float logit) { return std::isnan(logit) ? kMinusInfinity : static_cast<double>(logit); }

// exp(z - max_z) in fixed point. Two infinities of one sign differ by nothing.
uint64_t Weight(double z, double max_z) {
  const float difference = z == max_z ? 0.0f : static_cast<float>(z - max_z);
  return static_cast<uint64_t>(static_cast<double>(kernels::Exp(difference)) * kOne);
}

float LogProbability(double z, double max_z, uint64_t mass) {
  const double difference = z == max_z ? 0.0 : z - max_z;
  return static_cast<float>(difference - kernels::Log(static_cast<double>(mass) / kOne));
}

SampledToken Argmax(absl::Span<const float> logits) {
  int32_t best = 0;
  for (size_t token = 1; token < logits.size(); ++token) {
    if (OrMinusInfinity(logits[token]) > OrMinusInfinity(logits[best])) best = static_cast<int32_t>(token);
  }
  const double max_z = OrMinusInfinity(logits[best]);
  uint64_t mass = 0;
  for (float logit : logits) mass += Weight(OrMinusInfinity(logit), max_z);
  return {best, LogProbability(max_z, max_z, mass)};
}

}  // namespace

absl::Status ValidateSamplingParams(const SamplingParams& params) {
  if (!(params.temperature >= 0 && params.temperature <= 100)) {
    return absl::InvalidArgumentError(absl::StrCat("temperature is ", params.temperature, ", allowed 0 to 100"));
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("top_p is ", params.top_p, ", allowed above 0 to 1"));
  }
  if (params.top_k < 0) {
    return absl::InvalidArgumentError(absl::StrCat("top_k is ", params.top_k, ", at least 0"));
  }
  return absl::OkStatus();
}

double GumbelNoise(uint64_t seed, uint32_t choice, int64_t position, int32_t token) {
  const std::array<uint32_t, 4> words =
      Philox4x32(seed, {static_cast<uint32_t>(token), static_cast<uint32_t>(position),
                        static_cast<uint32_t>(static_cast<uint64_t>(position) >> 32), choice});
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 12;
  const double uniform = (static_cast<double>(bits) + 0.5) * 0x1p-52;  // exact, and never 0 or 1
  return -kernels::Log(-kernels::Log(uniform));
}

Sampler::Sampler(int vocab_size) : vocab_size_(vocab_size) {
  TANDEM_CHECK(vocab_size > 0 && vocab_size <= kVocabMax, "the vocabulary's mass fits 64 bits");
  kept_.reserve(vocab_size);
}

// In order of probability: the higher z first, the lower id first among equals.
bool Sampler::ComesAfter(const Candidate& a, const Candidate& b) { return a.z != b.z ? a.z < b.z : a.token > b.token; }

void Sampler::Collect(absl::Span<const float> logits, double temperature) {
  kept_.clear();
  double max_z = kMinusInfinity;
  for (size_t token = 0; token < logits.size(); ++token) {
    const double z = OrMinusInfinity(logits[token]) / temperature;
    max_z = std::max(max_z, z);
    kept_.push_back({z, 0, static_cast<int32_t>(token)});
  }
  for (Candidate& candidate : kept_) candidate.weight = Weight(candidate.z, max_z);
}

void Sampler::KeepTopK(int top_k) {
  if (top_k == 0 || top_k >= static_cast<int>(kept_.size())) return;
  std::nth_element(kept_.begin(), kept_.begin() + top_k, kept_.end(),
                   [](const Candidate& a, const Candidate& b) { return ComesAfter(b, a); });
  kept_.resize(top_k);
}

void Sampler::KeepTopP(float top_p) {
  if (top_p >= 1.0f) return;
  const uint64_t share = static_cast<uint64_t>(static_cast<double>(top_p) * 0x1p32);
  const uint64_t wanted = static_cast<uint64_t>(static_cast<unsigned __int128>(KeptMass()) * share >> 32);
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

uint64_t Sampler::KeptMass() const {
  uint64_t mass = 0;
  for (const Candidate& candidate : kept_) mass += candidate.weight;
  return mass;
}

SampledToken Sampler::Sample(absl::Span<const float> logits, const SamplingParams& params, uint32_t choice,
                             int64_t position) {
  TANDEM_CHECK(logits.size() == vocab_size_, "logits of this sampler's vocabulary");
  if (params.temperature == 0) return Argmax(logits);
  Collect(logits, params.temperature);
  KeepTopK(params.top_k);
  KeepTopP(params.top_p);

  double max_z = kMinusInfinity;
  for (const Candidate& candidate : kept_) max_z = std::max(max_z, candidate.z);
  const Candidate* best = nullptr;
  double best_score = kMinusInfinity;
  for (const Candidate& candidate : kept_) {
    // No noise can lift it, and equal scores go to the lower id: the order of kept_ decides nothing.
    if (best != nullptr && candidate.z + kNoiseMax < best_score) continue;
    const double score = candidate.z + GumbelNoise(params.seed, choice, position, candidate.token);
    const bool is_better =
        best == nullptr || score > best_score || (score == best_score && candidate.token < best->token);
    if (is_better) {
      best = &candidate;
      best_score = score;
    }
  }
  return {best->token, LogProbability(best->z, max_z, KeptMass())};
}

}  // namespace tandem::model

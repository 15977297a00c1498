// The next token from one row of logits: a pure function of (logits, params, choice, position).
//
// token = argmax over the kept set of logit / temperature + g, g = -log(-log(u)) Gumbel noise that belongs to (seed,
// choice, position, token id) alone. So a token does not depend on batches, on what was drawn before, or on which
// worker draws it: drafts, targets and a resumed request all meet the same noise.
//   u      = ((w0 * 2^32 + w1) >> 12 + 1/2) * 2^-52, (w0, w1, ...) = Philox4x32-10(key = seed,
//            counter = {token id, position low, position high, choice})
//   kept   = the top_k highest logits, of which the shortest prefix in order of probability whose mass is at least
//            top_p of theirs; equal logits count in order of id. Mass is summed in fixed point (2^-44), in any order.
//   logarithms and exponentials are the kernels' own: no libm, the same bits on every machine
// Temperature 0 is the highest logit, the lower id on ties. NaN counts as -inf.
// Tested by sampler_test.cc (statistics, brute force, golden vectors).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tandem::model {

struct SamplingParams {
  float temperature = 1.0f;  // 0 to 100; 0 = argmax
  float top_p = 1.0f;        // above 0 to 1; 1 = off
  int top_k = 0;             // 0 = off
  uint64_t seed = 0;
  bool operator==(const SamplingParams&) const = default;
};
// INVALID_ARGUMENT naming field, value and range.
absl::Status ValidateSamplingParams(const SamplingParams& params);

struct SampledToken {
  int32_t token = 0;
  // Under the distribution that it was drawn from: the kept set at this temperature. At temperature 0 under the plain
  // softmax of the logits.
  float logprob = 0;
  bool operator==(const SampledToken&) const = default;
};

// Gumbel noise of one candidate.
double GumbelNoise(uint64_t seed, uint32_t choice, int64_t position, int32_t token);

// Holds scratch memory for a vocabulary, so that drawing allocates nothing. Not for two threads at once.
class Sampler final {
 public:
  explicit Sampler(int vocab_size);

  // logits: [vocab_size]. choice: which of the request's num_choices. position: the absolute position that the drawn
  // token takes, that is, the number of tokens before it. params must be valid.
  SampledToken Sample(absl::Span<const float> logits, const SamplingParams& params, uint32_t choice, int64_t position);

 private:
  struct Candidate {
    double z;         // logit / temperature
    uint64_t weight;  // exp(z - max z) in fixed point
    int32_t token;
  };
  static bool ComesAfter(const Candidate& a, const Candidate& b);

  void Collect(absl::Span<const float> logits, double temperature);
  void KeepTopK(int top_k);
  void KeepTopP(float top_p);
  uint64_t KeptMass() const;

  const size_t vocab_size_;
  std::vector<Candidate> kept_;
};

}  // namespace tandem::model

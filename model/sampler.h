// The next token from one row of logits: a pure function of (logits, params, counts of the tokens before, masked
// tokens, choice, position).
//
// Order of operations, each on what the one before left:
//   1. repetition penalty  every token of the prompt or the answer: logit / penalty where it is above 0, else
//                          logit * penalty
//   2. frequency penalty   every token of the answer: minus penalty * its count in the answer
//   3. presence penalty    every token of the answer: minus penalty
//   4. logit bias          plus the bias; a bias of kBanBias (-100) bans the token
//   5. masks               banned tokens, those that may not be drawn here (stop ids before min_new_tokens), and those
//                          that a constraint does not allow (token_mask/): -inf
//   6. temperature         z = logit / temperature; at 0 the token is argmax, the lower id on ties, and the rest is off
//   7. top_k               the k highest z; equal ones count in order of id
//   8. top_p               of these the shortest prefix in order of probability whose mass is at least top_p of theirs
//   9. min_p               of these the ones at least min_p times as probable as the likeliest token
//  10. draw                argmax over the kept set of z + g, the lower id on ties; g: Gumbel noise, below
// 1 to 5 are SGLang's order, 6 to 9 Hugging Face's. Log-probabilities (logprobs.h) are of the row before 1.
//
// The noise g = -log(-log(u)) belongs to (seed, choice, position, token id) alone. So a token does not depend on
// batches, on what was drawn before, or on which worker draws it: drafts, targets and a resumed request all meet the
// same noise.
//   u = ((w0 * 2^32 + w1) >> 12 + 1/2) * 2^-52, (w0, w1, ...) = Philox4x32-10(key = seed,
//       counter = {token id, position low, position high, choice})
// Mass is summed in fixed point, logarithms and exponentials are the kernels' own: no libm, the same bits on every
// machine. NaN counts as -inf.
// Tested by sampler_test.cc (statistics, brute force) and sampler_golden_test.cc (NumPy vectors).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/logprobs.h"
#include "model/sampling_params.h"
#include "model/token_counts.h"
#include "model/token_mask/token_mask.h"

namespace tandem::model {

struct SampleInput {
  absl::Span<const float> logits;  // [vocab_size]
  const SamplingParams& params;    // valid
  const TokenCounts& counts;       // of the tokens before `position`; looked at only where params.HasPenalties()
  absl::Span<const int32_t> masked_tokens;  // of the vocabulary; not to be drawn here
  const TokenMask* allowed = nullptr;       // no other may be drawn; nullptr: any
  uint32_t choice = 0;                      // which of the request's num_choices
  int64_t position = 0;                     // that the drawn token takes: the number of tokens before it
};

struct SampledToken {
  int32_t token = 0;
  TokenLogprobs logprobs;  // zeros unless wanted
  bool operator==(const SampledToken&) const = default;
};

// Gumbel noise of one candidate.
double GumbelNoise(uint64_t seed, uint32_t choice, int64_t position, int32_t token);

// Holds scratch memory for a vocabulary, so that drawing allocates nothing. Not for two threads at once.
class Sampler final {
 public:
  explicit Sampler(int vocab_size);

  // INVALID_ARGUMENT where bans and masks leave no token, INTERNAL where the model gave no logit above -inf, or where
  // the constraint alone leaves none.
  absl::StatusOr<SampledToken> Sample(const SampleInput& input);

 private:
  struct Candidate {
    double z;         // adjusted logit, then over temperature
    uint64_t weight;  // exp(z - max z) in fixed point; set where a filter needs it
    int32_t token;
  };
  static bool ComesAfter(const Candidate& a, const Candidate& b);

  void Collect(const SampleInput& input);
  void Adjust(const SampleInput& input);
  void KeepTopK(int top_k);
  void KeepTopP(float top_p);
  void KeepMinP(float min_p);
  int32_t Draw(const SampleInput& input) const;
  absl::Status NothingLeft(const SampleInput& input) const;

  const size_t vocab_size_;
  std::vector<Candidate> kept_;
};

}  // namespace tandem::model

// Draws the token behind one row of a sequence, under everything that the request says of it: penalties over the tokens
// before, the answer's constraint, stop tokens that may not come yet, and the noise of that position.
//
// The one place where decode draws: steps and drafts meet the same rules, which is why drafts come true.
// Tested by engine_sampling_test.cc, engine_constraint_test.cc and engine_mtp_test.cc.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/sampler.h"
#include "model/token_counts.h"
#include "model/token_mask/token_matcher.h"
#include "worker_shell/answer_constraints.h"
#include "worker_shell/sampling.h"

namespace tandem::decode {

// Where one sequence stands: what has been taken in.
struct DrawPlace {
  uint32_t choice = 0;
  const worker_shell::DrawRules* draws = nullptr;
  model::TokenCounts* counts = nullptr;    // of the prompt and the generated tokens before
  model::TokenMatcher* matcher = nullptr;  // of the same generated tokens; null: the answer is not constrained
};

class TokenDrawer final {
 public:
  TokenDrawer(int vocab_size, worker_shell::AnswerConstraints& constraints)
      : constraints_(constraints), sampler_(vocab_size) {}

  // Takes in the row's own token. INTERNAL, and nothing changes: the constraint does not allow it there.
  absl::Status TakeIn(const DrawPlace& place, int32_t token) const;
  // Takes back the last tokens taken in, newest last. At most model::TokenMatcher::kRollbackMax.
  void TakeBack(const DrawPlace& place, absl::Span<const int32_t> tokens) const;
  // logits: [vocab_size] of the row whose token was taken in last. position: of the token that is drawn. is_draft: no
  // log-probabilities are made.
  absl::StatusOr<model::SampledToken> Draw(const DrawPlace& place, int64_t position, absl::Span<const float> logits,
                                           bool is_draft = false);

 private:
  worker_shell::AnswerConstraints& constraints_;
  model::Sampler sampler_;
};

}  // namespace tandem::decode

// For tests: what the router compiled, run as the workers run it, over a vocabulary of single bytes and the marks of
// router/testing/byte_tokenizer.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "model/token_mask/token_matcher.h"
#include "proto/common.pb.h"
#include "router/chat/ordered_json.h"
#include "router/constraints/answer_constraint.h"
#include "worker_shell/answer_constraints.h"

namespace tandem::testing {

class ConstraintProbe {
 public:
  // Aborts the test where the workers refuse it.
  explicit ConstraintProbe(const proto::Constraint& constraint);

  // Marks in the text are their tokens.
  bool Accepts(absl::string_view text);
  // Every byte is a token of its own, those of marks, too.
  bool AcceptsBytes(absl::string_view text);
  // Whether an answer may begin so.
  bool AcceptsFront(absl::string_view text);

  // An answer drawn at random from what the masks allow. After num_tokens_soft what ends things is drawn first.
  // nullopt: not over after num_tokens_max, which is no error of the constraint.
  struct Written {
    std::string text;
    std::vector<uint32_t> tokens;  // with the end token
  };
  std::optional<Written> Write(uint32_t seed, int num_tokens_soft, int num_tokens_max);

  const model::Constraint& constraint() const { return *constraint_; }

 private:
  std::optional<model::TokenMatcher> Read(absl::string_view text);
  std::optional<model::TokenMatcher> ReadTokens(absl::Span<const router::TokenId> tokens);

  worker_shell::AnswerConstraints constraints_;
  std::shared_ptr<const model::Constraint> constraint_;
};

// The value; aborts the test where the text is no JSON.
router::OrderedJson Json(absl::string_view text);

// An answer that is JSON of the schema. Errors are laid at "schema".
absl::StatusOr<std::shared_ptr<const proto::Constraint>> CompileSchema(absl::string_view schema);
absl::StatusOr<std::shared_ptr<const proto::Constraint>> CompileAnswer(const router::AnswerConstraint& answer);

}  // namespace tandem::testing

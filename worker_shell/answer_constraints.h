// What a worker holds for answers that must follow a grammar: the vocabulary, the constraints that requests have sent
// lately, and the masks of both. Equal constraints of different requests are one, so that a tool's schema is prepared
// once however often it is asked for. One thread: the engine's.
// Tested by answer_constraints_test.cc.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "model/token_mask/constraint.h"
#include "model/token_mask/token_masker.h"
#include "model/token_mask/token_matcher.h"
#include "proto/common.pb.h"

namespace tandem::worker_shell {

class AnswerConstraints final {
 public:
  static constexpr size_t kKeptConstraints = 32;
  static constexpr size_t kKeptMaskBytes = size_t{64} << 20;

  // vocabulary: nullptr where the checkpoint brings none.
  explicit AnswerConstraints(std::shared_ptr<const model::Vocabulary> vocabulary);

  // FAILED_PRECONDITION without a vocabulary; INVALID_ARGUMENT where it is no automaton (Constraint::Build).
  absl::StatusOr<std::shared_ptr<const model::Constraint>> Prepare(const proto::Constraint& constraint);

  // Valid until the next call.
  const model::TokenMask& MaskAfter(const model::TokenMatcher& matcher);

 private:
  struct Kept {
    std::string bytes;
    std::shared_ptr<const model::Constraint> constraint;
  };

  const std::shared_ptr<const model::Vocabulary> vocabulary_;
  std::list<Kept> kept_;  // the most recently used first
  absl::flat_hash_map<absl::string_view, std::list<Kept>::iterator> by_bytes_;
  model::TokenMasker masker_;
  model::TokenMask mask_;
};

}  // namespace tandem::worker_shell

#include "worker_shell/answer_constraints.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::worker_shell {
namespace {

using Pairs = google::protobuf::RepeatedField<uint32_t>;

absl::StatusOr<std::vector<std::pair<uint32_t, uint32_t>>> PairsOf(const Pairs& numbers) {
  if (numbers.size() % 2 != 0) return absl::InvalidArgumentError("constraint: numbers that come in pairs are odd");
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  pairs.reserve(numbers.size() / 2);
  for (int i = 0; i < numbers.size(); i += 2) pairs.emplace_back(numbers[i], numbers[i + 1]);
  return pairs;
}

absl::StatusOr<model::ConstraintSpec> SpecFrom(const proto::Constraint& constraint) {
  model::ConstraintSpec spec;
  for (const proto::Constraint::CharSet& set : constraint.char_sets()) {
    ASSIGN_OR_RETURN(const auto ranges, PairsOf(set.bounds()));
    auto& out = spec.char_sets.emplace_back();
    for (const auto& [first, last] : ranges) out.push_back({first, last});
  }
  for (const proto::Constraint::State& state : constraint.states()) {
    model::ConstraintState& out = spec.states.emplace_back();
    out.is_accepting = state.is_accepting();
    for (const auto& [numbers, steps] : {std::pair{&state.chars(), &out.chars}, std::pair{&state.tokens(), &out.tokens},
                                         std::pair{&state.calls(), &out.calls}}) {
      ASSIGN_OR_RETURN(const auto pairs, PairsOf(*numbers));
      for (const auto& [what, to] : pairs) steps->push_back({what, to});
    }
  }
  spec.first_state = constraint.first_state();
  spec.end_tokens.assign(constraint.end_tokens().begin(), constraint.end_tokens().end());
  return spec;
}

}  // namespace

AnswerConstraints::AnswerConstraints(std::shared_ptr<const model::Vocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)),
      masker_(kKeptMaskBytes),
      mask_(vocabulary_ == nullptr ? 0 : vocabulary_->size()) {}

absl::StatusOr<std::shared_ptr<const model::Constraint>> AnswerConstraints::Prepare(
    const proto::Constraint& constraint) {
  if (vocabulary_ == nullptr) {
    return absl::FailedPreconditionError("the worker's checkpoint has no tokenizer.json: it cannot constrain answers");
  }
  std::string bytes = constraint.SerializeAsString();
  if (const auto it = by_bytes_.find(bytes); it != by_bytes_.end()) {
    kept_.splice(kept_.begin(), kept_, it->second);
    return it->second->constraint;
  }
  ASSIGN_OR_RETURN(model::ConstraintSpec spec, SpecFrom(constraint));
  ASSIGN_OR_RETURN(auto built, model::Constraint::Build(std::move(spec), vocabulary_));
  kept_.push_front({.bytes = std::move(bytes), .constraint = built});
  by_bytes_.emplace(kept_.front().bytes, kept_.begin());
  if (kept_.size() > kKeptConstraints) {
    by_bytes_.erase(kept_.back().bytes);
    kept_.pop_back();
  }
  return built;
}

const model::TokenMask& AnswerConstraints::MaskAfter(const model::TokenMatcher& matcher) {
  masker_.MaskAfter(matcher, &mask_);
  return mask_;
}

}  // namespace tandem::worker_shell

// Rules that call each other, put together into what the workers run (proto::Constraint).
//
// A rule is an automaton (automaton.h); it is reserved before it is defined, so that rules may call themselves.
// Finish() takes out what can never be completed: every place that is left leads to an end, and a worker never has to
// look ahead. Bounded in states and in bytes. Tested by grammar_test.cc, and through those who write rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/common.pb.h"
#include "router/constraints/automaton.h"

namespace tandem::router {

inline constexpr int kConstraintStatesMax = 16384;                // as many as a worker takes
inline constexpr size_t kConstraintBytesMax = size_t{256} << 10;  // on the wire, with every request

class Grammar final {
 public:
  uint32_t Reserve() {
    rules_.emplace_back();
    return static_cast<uint32_t>(rules_.size() - 1);
  }
  // RESOURCE_EXHAUSTED: the rules together take more than kConstraintStatesMax states.
  absl::Status Define(uint32_t rule, const Nfa& nfa) { return DefineAs(rule, nfa, /*may_be_empty=*/true); }
  // The same without the empty text: what is called must read something. Callers go around it where it may be empty.
  absl::Status DefineNonEmpty(uint32_t rule, const Nfa& nfa) { return DefineAs(rule, nfa, /*may_be_empty=*/false); }
  // The most rules that may begin at one place, calls of calls included; no more than `enough` are counted.
  size_t MostCallsAtOnce(size_t enough) const;
  // Of all that is compiled for this grammar.
  CompileBudget* budget() { return &budget_; }

  // The answers are the texts of `root`, each followed by an end token. INVALID_ARGUMENT: there are none; a rule calls
  // itself before it has read anything. RESOURCE_EXHAUSTED: too many states or bytes.
  absl::StatusOr<proto::Constraint> Finish(uint32_t root, absl::Span<const uint32_t> end_tokens) const;

 private:
  absl::Status DefineAs(uint32_t rule, const Nfa& nfa, bool may_be_empty);

  std::vector<Dfa> rules_;
  int num_states_ = 0;
  CompileBudget budget_;
};

}  // namespace tandem::router

// Regular expressions of JSON Schema's `pattern`, as automata.
//
// The regular subset of ECMA-262: literals, ., classes with ranges and escapes, \d \w \s and their opposites, groups,
// alternatives, * + ? {n} {n,} {n,m} (lazy ones read the same texts), ^ and $ at the ends of an alternative of the
// whole. As JSON Schema has it, a pattern may match anywhere unless it is anchored. Dialects differ in what classes
// mean beyond ASCII, so generated texts stay where all agree: \d \w \s are ASCII, and \D \W \S and a negated class with
// one of those read ASCII alone. Refused by name: look-around, references, \b, \p{..}. Tested by pattern_test.cc.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/constraints/automaton.h"

namespace tandem::router {

// INVALID_ARGUMENT: no pattern, or beyond the subset. RESOURCE_EXHAUSTED: takes more states
// or work.
absl::StatusOr<Dfa> CompilePattern(absl::string_view pattern, int num_states_max, CompileBudget* budget);

}  // namespace tandem::router

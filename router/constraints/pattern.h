// Regular expressions as automata: JSON Schema's `pattern`, which may match anywhere, and `regex`, which is the whole.
//
// The regular subset that ECMA-262, Python's re and xgrammar share: literals, ., classes with ranges and escapes, \d \w
// \s and their opposites, \xHH, \uHHHH, \u{H..}, groups (also (?:..), (?<name>..), (?P<name>..)), alternatives,
// * + ? {n} {n,} {n,m} (lazy ones read the same texts), ^ and $ at the ends of an alternative of the whole. Where
// dialects differ beyond ASCII, generated texts stay where all agree (char_syntax.h). Refused by name and place:
// look-around, references, flags, \b, \p{..}, possessive repeats. Tested by pattern_test.cc.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/constraints/automaton.h"

namespace tandem::router {

enum class PatternReach { kAnywhere, kWhole };

// pattern: valid UTF-8. INVALID_ARGUMENT: no pattern, or beyond the subset. RESOURCE_EXHAUSTED: takes more states or
// work.
absl::StatusOr<Dfa> CompilePattern(absl::string_view pattern, PatternReach reach, int num_states_max,
                                   CompileBudget* budget);

}  // namespace tandem::router

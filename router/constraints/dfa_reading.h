// For tests: whether an automaton of characters alone reads a text.
#pragma once

#include "absl/strings/string_view.h"
#include "router/constraints/automaton.h"

namespace tandem::router {

inline bool Reads(const Dfa& dfa, absl::string_view text) {
  if (dfa.empty()) return false;
  int state = 0;
  for (const uint32_t c : CharsOf(text)) {
    int next = -1;
    for (const auto& [chars, to] : dfa.states[state].chars) {
      if (chars.Contains(c)) next = to;
    }
    if (next < 0) return false;
    state = next;
  }
  return dfa.states[state].is_accepting;
}

}  // namespace tandem::router

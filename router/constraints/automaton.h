// Automata as they are put together: nondeterministic while a rule is written, deterministic when it is used.
//
// An automaton reads characters, tokens that stand for themselves, and calls: one call reads whatever the called rule
// reads. Determinising takes a call for a letter of its own, so that alternatives which begin with the same rule or the
// same text cost one state at each place. Work and memory are bounded by the number of states asked for.
// Tested by automaton_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/constraints/char_class.h"

namespace tandem::router {

// What compiling one request may cost: steps of determinising and of intersecting, for all of its parts together.
struct CompileBudget {
  static constexpr int64_t kSteps = 8'000'000;  // at most some 0.4 s of one thread (docs/performance.md)
  int64_t left = kSteps;
};

// From state 0 on; every state can be reached, and an accepting one from it.
struct Dfa {
  struct State {
    bool is_accepting = false;
    std::vector<std::pair<CharClass, int>> chars;  // disjoint
    std::vector<std::pair<uint32_t, int>> tokens;
    std::vector<std::pair<uint32_t, int>> calls;  // of rules
  };
  // No states: it reads nothing at all, not even the empty text.
  bool empty() const { return states.empty(); }
  std::vector<State> states;
};

class Nfa final {
 public:
  Nfa() { AddState(); }

  static constexpr int kStart = 0;

  int AddState();
  void SetAccepting(int state) { states_[state].is_accepting = true; }
  void AddEpsilon(int from, int to) { states_[from].epsilons.push_back(to); }
  void AddChars(int from, const CharClass& chars, int to);
  void AddToken(int from, uint32_t token, int to) { states_[from].tokens.emplace_back(token, to); }
  void AddCall(int from, uint32_t rule, int to) { states_[from].calls.emplace_back(rule, to); }
  // The characters of a text, one after the other, from `from` to a new state.
  int AddText(int from, absl::string_view text);
  // A copy of the automaton between `from` and `to`.
  void AddDfa(int from, const Dfa& dfa, int to);

  int num_states() const { return static_cast<int>(states_.size()); }
  // States, and ranges of characters on their edges: what bounds memory.
  int64_t size() const { return num_states() + num_ranges_; }

  // RESOURCE_EXHAUSTED where it takes more than num_states_max states, or more than is left of the budget.
  absl::StatusOr<Dfa> Determinize(int num_states_max, CompileBudget* budget) const;

 private:
  struct State {
    bool is_accepting = false;
    std::vector<int> epsilons;
    std::vector<std::pair<CharClass, int>> chars;
    std::vector<std::pair<uint32_t, int>> tokens;
    std::vector<std::pair<uint32_t, int>> calls;
  };
  using StateSet = std::vector<int>;  // ascending

  StateSet Close(StateSet states) const;

  std::vector<State> states_;
  int64_t num_ranges_ = 0;
};

// Without the states from which no accepting one is reached.
Dfa Trim(const Dfa& dfa);

// The same texts but the empty one.
Dfa WithoutEmptyText(Dfa dfa);

// Texts that both read; of automata that read characters alone. RESOURCE_EXHAUSTED as above.
absl::StatusOr<Dfa> Intersect(const Dfa& a, const Dfa& b, int num_states_max, CompileBudget* budget);

// Texts of min to max characters (max < 0: any number) of a class.
Dfa CharsBetween(const CharClass& chars, int min, int max);

// Texts in which none of the given ones occurs; none of them is empty.
Dfa TextWithout(const std::vector<std::string>& forbidden);

// Texts of these characters, at least one, that are none of the given ones.
Dfa TextOtherThan(const std::vector<std::string>& texts, const CharClass& chars);

}  // namespace tandem::router

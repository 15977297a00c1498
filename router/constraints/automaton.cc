#include "router/constraints/automaton.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace tandem::router {
namespace {

absl::Status TooLarge(int num_states_max) {
  return absl::ResourceExhaustedError(absl::StrCat("takes more than ", num_states_max, " states"));
}

absl::Status Spend(int64_t steps, CompileBudget* budget) {
  budget->left -= steps;
  if (budget->left >= 0) return absl::OkStatus();
  return absl::ResourceExhaustedError("takes more work to compile than one request may cause");
}

// Cuts the characters of several edges into classes that lead to the same set of states.
absl::StatusOr<std::map<std::vector<int>, CharClass>> SplitByTargets(
    const std::vector<std::pair<const CharClass*, int>>& edges, CompileBudget* budget) {
  struct Event {
    uint32_t at;
    bool begins;
    int to;
  };
  std::vector<Event> events;
  for (const auto& [chars, to] : edges) {
    for (const CharClass::Range& range : chars->ranges()) {
      events.push_back({range.first, true, to});
      events.push_back({range.last + 1, false, to});
    }
  }
  RETURN_IF_ERROR(Spend(static_cast<int64_t>(events.size()), budget));
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.at < b.at; });
  std::map<std::vector<int>, std::vector<CharClass::Range>> ranges;
  std::map<int, int> open;  // state -> edges that are open
  for (size_t i = 0; i < events.size(); ++i) {
    int& count = open[events[i].to];
    count += events[i].begins ? 1 : -1;
    if (count == 0) open.erase(events[i].to);
    if (open.empty() || i + 1 == events.size() || events[i + 1].at == events[i].at) continue;
    RETURN_IF_ERROR(Spend(static_cast<int64_t>(open.size()), budget));
    std::vector<int> targets;
    targets.reserve(open.size());
    for (const auto& [to, edges_open] : open) targets.push_back(to);
    ranges[std::move(targets)].push_back({events[i].at, events[i + 1].at - 1});
  }
  std::map<std::vector<int>, CharClass> classes;
  for (auto& [targets, of_targets] : ranges) classes.emplace(targets, CharClass(std::move(of_targets)));
  return classes;
}

}  // namespace

int Nfa::AddState() {
  states_.emplace_back();
  return num_states() - 1;
}

void Nfa::AddChars(int from, const CharClass& chars, int to) {
  if (chars.empty()) return;
  states_[from].chars.emplace_back(chars, to);
  num_ranges_ += static_cast<int64_t>(chars.ranges().size());
}

int Nfa::AddText(int from, absl::string_view text) {
  for (const uint32_t c : CharsOf(text)) {
    const int next = AddState();
    AddChars(from, CharClass::Of(c), next);
    from = next;
  }
  return from;
}

void Nfa::AddDfa(int from, const Dfa& dfa, int to) {
  if (dfa.empty()) return;
  const int base = num_states();
  for (size_t i = 0; i < dfa.states.size(); ++i) AddState();
  for (size_t i = 0; i < dfa.states.size(); ++i) {
    const Dfa::State& state = dfa.states[i];
    const int at = base + static_cast<int>(i);
    for (const auto& [chars, target] : state.chars) AddChars(at, chars, base + target);
    for (const auto& [token, target] : state.tokens) AddToken(at, token, base + target);
    for (const auto& [rule, target] : state.calls) AddCall(at, rule, base + target);
    if (state.is_accepting) AddEpsilon(at, to);
  }
  AddEpsilon(from, base);
}

Nfa::StateSet Nfa::Close(StateSet states) const {
  absl::flat_hash_set<int> is_in(states.begin(), states.end());
  for (size_t i = 0; i < states.size(); ++i) {
    for (const int next : states_[states[i]].epsilons) {
      if (is_in.insert(next).second) states.push_back(next);
    }
  }
  std::sort(states.begin(), states.end());
  states.erase(std::unique(states.begin(), states.end()), states.end());
  return states;
}

absl::StatusOr<Dfa> Nfa::Determinize(int num_states_max, CompileBudget* budget) const {
  Dfa dfa;
  std::map<StateSet, int> known;
  std::deque<StateSet> open;
  const auto index_of = [&](StateSet states) -> absl::StatusOr<int> {
    const auto [it, is_new] = known.emplace(Close(std::move(states)), static_cast<int>(dfa.states.size()));
    RETURN_IF_ERROR(Spend(static_cast<int64_t>(it->first.size()), budget));
    if (is_new) {
      dfa.states.emplace_back();
      open.push_back(it->first);
    }
    return it->second;
  };
  RETURN_IF_ERROR(index_of({kStart}).status());
  for (int at = 0; !open.empty(); ++at) {
    const StateSet set = std::move(open.front());
    open.pop_front();
    RETURN_IF_ERROR(Spend(static_cast<int64_t>(set.size()), budget));
    Dfa::State state;
    std::vector<std::pair<const CharClass*, int>> chars;
    std::map<uint32_t, StateSet> tokens, calls;
    for (const int member : set) {
      const State& of = states_[member];
      state.is_accepting = state.is_accepting || of.is_accepting;
      for (const auto& [of_edge, to] : of.chars) chars.emplace_back(&of_edge, to);
      for (const auto& [token, to] : of.tokens) tokens[token].push_back(to);
      for (const auto& [rule, to] : of.calls) calls[rule].push_back(to);
    }
    // Different sets may share their closure: what reads into one state is one edge.
    std::map<int, std::vector<CharClass::Range>> by_target;
    ASSIGN_OR_RETURN(const auto classes, SplitByTargets(chars, budget));
    for (const auto& [targets, of_targets] : classes) {
      ASSIGN_OR_RETURN(const int to, index_of(targets));
      std::vector<CharClass::Range>& ranges = by_target[to];
      ranges.insert(ranges.end(), of_targets.ranges().begin(), of_targets.ranges().end());
    }
    for (auto& [to, ranges] : by_target) state.chars.emplace_back(CharClass(std::move(ranges)), to);
    for (auto& [token, targets] : tokens) {
      ASSIGN_OR_RETURN(const int to, index_of(std::move(targets)));
      state.tokens.emplace_back(token, to);
    }
    for (auto& [rule, targets] : calls) {
      ASSIGN_OR_RETURN(const int to, index_of(std::move(targets)));
      state.calls.emplace_back(rule, to);
    }
    dfa.states[at] = std::move(state);
    if (dfa.states.size() > static_cast<size_t>(num_states_max)) return TooLarge(num_states_max);
  }
  return Trim(dfa);
}

Dfa Trim(const Dfa& dfa) {
  const size_t size = dfa.states.size();
  std::vector<std::vector<int>> before(size);
  std::vector<int> open;
  std::vector<bool> is_alive(size, false);
  for (size_t i = 0; i < size; ++i) {
    const Dfa::State& state = dfa.states[i];
    for (const auto& [chars, to] : state.chars) before[to].push_back(static_cast<int>(i));
    for (const auto& [token, to] : state.tokens) before[to].push_back(static_cast<int>(i));
    for (const auto& [rule, to] : state.calls) before[to].push_back(static_cast<int>(i));
    if (!state.is_accepting) continue;
    is_alive[i] = true;
    open.push_back(static_cast<int>(i));
  }
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    for (const int state : before[at]) {
      if (is_alive[state]) continue;
      is_alive[state] = true;
      open.push_back(state);
    }
  }
  if (size == 0 || !is_alive[0]) return {};
  // Also without those that nothing leads to, in order of discovery.
  std::vector<int> number(size, -1);
  std::vector<int> order = {0};
  number[0] = 0;
  const auto number_of = [&](int state) {
    if (number[state] < 0) {
      number[state] = static_cast<int>(order.size());
      order.push_back(state);
    }
    return number[state];
  };
  Dfa trimmed;
  for (size_t i = 0; i < order.size(); ++i) {
    const Dfa::State& state = dfa.states[order[i]];
    Dfa::State kept;
    kept.is_accepting = state.is_accepting;
    for (const auto& [chars, to] : state.chars) {
      if (is_alive[to]) kept.chars.emplace_back(chars, number_of(to));
    }
    for (const auto& [token, to] : state.tokens) {
      if (is_alive[to]) kept.tokens.emplace_back(token, number_of(to));
    }
    for (const auto& [rule, to] : state.calls) {
      if (is_alive[to]) kept.calls.emplace_back(rule, number_of(to));
    }
    trimmed.states.push_back(std::move(kept));
  }
  return trimmed;
}

Dfa WithoutEmptyText(Dfa dfa) {
  if (dfa.empty() || !dfa.states[0].is_accepting) return dfa;
  // What leads back to the start must find it accepting as before: at the end of the list.
  const int start = static_cast<int>(dfa.states.size());
  dfa.states.push_back(dfa.states[0]);
  for (Dfa::State& state : dfa.states) {
    for (auto& [chars, to] : state.chars) to = to == 0 ? start : to;
    for (auto& [token, to] : state.tokens) to = to == 0 ? start : to;
    for (auto& [rule, to] : state.calls) to = to == 0 ? start : to;
  }
  dfa.states[0].is_accepting = false;
  return Trim(dfa);
}

absl::StatusOr<Dfa> Intersect(const Dfa& a, const Dfa& b, int num_states_max, CompileBudget* budget) {
  if (a.empty() || b.empty()) return Dfa();
  Dfa product;
  std::map<std::pair<int, int>, int> known;
  std::vector<std::pair<int, int>> pairs;
  const auto index_of = [&](std::pair<int, int> pair) {
    const auto [it, is_new] = known.emplace(pair, static_cast<int>(pairs.size()));
    if (is_new) pairs.push_back(pair);
    return it->second;
  };
  index_of({0, 0});
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [in_a, in_b] = pairs[i];
    Dfa::State state;
    int64_t num_ranges_b = 1;
    for (const auto& [chars_b, to_b] : b.states[in_b].chars)
      num_ranges_b += static_cast<int64_t>(chars_b.ranges().size());
    int64_t steps = 1;
    for (const auto& [chars_a, to_a] : a.states[in_a].chars) {
      steps += static_cast<int64_t>(chars_a.ranges().size() * b.states[in_b].chars.size()) + num_ranges_b;
    }
    RETURN_IF_ERROR(Spend(steps, budget));
    state.is_accepting = a.states[in_a].is_accepting && b.states[in_b].is_accepting;
    for (const auto& [chars_a, to_a] : a.states[in_a].chars) {
      for (const auto& [chars_b, to_b] : b.states[in_b].chars) {
        CharClass both = chars_a.Intersect(chars_b);
        if (!both.empty()) state.chars.emplace_back(std::move(both), index_of({to_a, to_b}));
      }
    }
    product.states.push_back(std::move(state));
    if (pairs.size() > static_cast<size_t>(num_states_max)) return TooLarge(num_states_max);
  }
  return Trim(product);
}

Dfa CharsBetween(const CharClass& chars, int min, int max) {
  Dfa dfa;
  const int last = max < 0 ? min : max;
  for (int i = 0; i <= last; ++i) {
    Dfa::State& state = dfa.states.emplace_back();
    state.is_accepting = i >= min;
    if (i < last) state.chars.emplace_back(chars, i + 1);
  }
  if (max < 0) dfa.states.back().chars.emplace_back(chars, last);
  return dfa;
}

// Aho and Corasick's automaton: a state is the longest end of the text that begins a forbidden one.
Dfa TextWithout(const std::vector<std::string>& forbidden) {
  std::set<std::vector<uint32_t>> whole;
  std::map<std::vector<uint32_t>, int> states = {{{}, 0}};
  std::set<uint32_t> letters;
  for (const std::string& text : forbidden) {
    TANDEM_CHECK(!text.empty(), "a text to forbid");
    const std::vector<uint32_t> chars = CharsOf(text);
    whole.insert(chars);
    letters.insert(chars.begin(), chars.end());
    for (size_t length = 1; length < chars.size(); ++length) {
      states.emplace(std::vector<uint32_t>(chars.begin(), chars.begin() + length), static_cast<int>(states.size()));
    }
  }
  std::vector<CharClass::Range> ranges;
  for (const uint32_t c : letters) ranges.push_back({c, c});
  const CharClass others = CharClass(std::move(ranges)).Complement();
  Dfa dfa;
  dfa.states.resize(states.size());
  for (const auto& [front, index] : states) {
    Dfa::State& state = dfa.states[index];
    state.is_accepting = true;
    std::map<int, CharClass> by_target = {{0, others}};
    for (const uint32_t c : letters) {
      std::vector<uint32_t> end = front;
      end.push_back(c);
      bool is_forbidden = false;
      int to = -1;
      for (; to < 0; end.erase(end.begin())) {
        is_forbidden = is_forbidden || whole.contains(end);
        const auto it = states.find(end);
        if (it != states.end()) to = it->second;
        if (end.empty()) break;
      }
      // A forbidden text that is the end of a longer front.
      for (; !end.empty() && !is_forbidden; end.erase(end.begin())) is_forbidden = whole.contains(end);
      if (!is_forbidden) by_target[to] = by_target[to].Union(CharClass::Of(c));
    }
    for (auto& [to, chars] : by_target) {
      if (!chars.empty()) state.chars.emplace_back(chars, to);
    }
  }
  return Trim(dfa);
}

Dfa TextOtherThan(const std::vector<std::string>& texts, const CharClass& chars) {
  Dfa dfa;
  dfa.states.resize(2);
  constexpr int kFree = 1;  // it is none of them already
  dfa.states[kFree].is_accepting = true;
  dfa.states[kFree].chars.emplace_back(chars, kFree);
  std::vector<std::map<uint32_t, int>> fronts(2);
  std::set<int> whole = {0};  // nor empty
  for (const std::string& text : texts) {
    int at = 0;
    for (const uint32_t c : CharsOf(text)) {
      const auto [it, is_new] = fronts[at].emplace(c, static_cast<int>(dfa.states.size()));
      at = it->second;
      if (!is_new) continue;
      dfa.states.emplace_back();
      fronts.emplace_back();
    }
    whole.insert(at);
  }
  for (size_t i = 0; i < dfa.states.size(); ++i) {
    if (i == kFree) continue;
    CharClass others = chars;
    for (const auto& [c, to] : fronts[i]) {
      others = others.Minus(CharClass::Of(c));
      if (chars.Contains(c)) dfa.states[i].chars.emplace_back(CharClass::Of(c), to);
    }
    if (!others.empty()) dfa.states[i].chars.emplace_back(others, kFree);
    dfa.states[i].is_accepting = !whole.contains(static_cast<int>(i));
  }
  return Trim(dfa);
}

}  // namespace tandem::router

#include "router/constraints/grammar.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace tandem::router {
namespace {

// Rules from whose first state an end can be reached. Marks states backwards from the ends; a call leads on only once
// its rule is known to end. Linear.
std::vector<bool> FindProductive(const std::vector<Dfa>& rules) {
  struct Place {
    uint32_t rule;
    int state;
  };
  struct Before {
    int state;
    int called;  // rule; -1: nothing is called
  };
  std::vector<std::vector<std::vector<Before>>> before(rules.size());  // of each state of each rule
  for (size_t rule = 0; rule < rules.size(); ++rule) {
    before[rule].resize(rules[rule].states.size());
    for (size_t i = 0; i < rules[rule].states.size(); ++i) {
      const Dfa::State& state = rules[rule].states[i];
      const int at = static_cast<int>(i);
      for (const auto& [chars, to] : state.chars) before[rule][to].push_back({at, -1});
      for (const auto& [token, to] : state.tokens) before[rule][to].push_back({at, -1});
      for (const auto& [called, to] : state.calls) before[rule][to].push_back({at, static_cast<int>(called)});
    }
  }
  std::vector<std::vector<bool>> is_alive(rules.size());
  std::vector<bool> is_productive(rules.size(), false);
  std::vector<std::vector<Place>> waiting(rules.size());  // for a rule to be productive
  std::vector<Place> open;
  const auto mark = [&](Place place) {
    if (is_alive[place.rule][place.state]) return;
    is_alive[place.rule][place.state] = true;
    open.push_back(place);
  };
  for (uint32_t rule = 0; rule < rules.size(); ++rule) {
    is_alive[rule].assign(rules[rule].states.size(), false);
    for (size_t i = 0; i < rules[rule].states.size(); ++i) {
      if (rules[rule].states[i].is_accepting) mark({rule, static_cast<int>(i)});
    }
  }
  while (!open.empty()) {
    const Place place = open.back();
    open.pop_back();
    for (const Before& step : before[place.rule][place.state]) {
      if (step.called < 0 || is_productive[step.called]) {
        mark({place.rule, step.state});
      } else {
        waiting[step.called].push_back({place.rule, step.state});
      }
    }
    if (place.state != 0) continue;
    is_productive[place.rule] = true;
    for (const Place& caller : std::exchange(waiting[place.rule], {})) mark(caller);
  }
  return is_productive;
}

// Leaves each rule what can be completed; a rule that cannot is empty.
void DropUnproductive(std::vector<Dfa>* rules) {
  const std::vector<bool> is_productive = FindProductive(*rules);
  for (Dfa& rule : *rules) {
    for (Dfa::State& state : rule.states) {
      std::erase_if(state.calls, [&](const auto& call) { return !is_productive[call.first]; });
    }
    rule = Trim(rule);
  }
}

// Whether `rule` may call itself, directly or not, before anything is read.
bool CallsItselfAtOnce(const std::vector<Dfa>& rules, uint32_t rule, std::vector<int>* seen) {
  enum { kNew, kOpen, kDone };
  (*seen)[rule] = kOpen;
  for (const auto& [called, to] : rules[rule].states[0].calls) {
    if ((*seen)[called] == kOpen) return true;
    if ((*seen)[called] == kNew && CallsItselfAtOnce(rules, called, seen)) return true;
  }
  (*seen)[rule] = kDone;
  return false;
}

}  // namespace

absl::Status Grammar::DefineAs(uint32_t rule, const Nfa& nfa, bool may_be_empty) {
  absl::StatusOr<Dfa> dfa = nfa.Determinize(kConstraintStatesMax - num_states_, &budget_);
  if (absl::IsResourceExhausted(dfa.status()) && budget_.left >= 0) {
    return absl::ResourceExhaustedError(absl::StrCat("takes more than ", kConstraintStatesMax, " states in all"));
  }
  RETURN_IF_ERROR(dfa.status());
  rules_[rule] = may_be_empty ? *std::move(dfa) : WithoutEmptyText(*std::move(dfa));
  num_states_ += static_cast<int>(rules_[rule].states.size());
  return absl::OkStatus();
}

size_t Grammar::MostCallsAtOnce(size_t enough) const {
  size_t most = 0;
  for (const Dfa& rule : rules_) {
    for (const Dfa::State& state : rule.states) {
      std::vector<uint32_t> called;
      absl::flat_hash_set<uint32_t> seen;
      const auto add = [&](const Dfa::State& from) {
        for (const auto& [other, to] : from.calls) {
          if (called.size() < enough && seen.insert(other).second) called.push_back(other);
        }
      };
      add(state);
      for (size_t i = 0; i < called.size(); ++i) {
        if (!rules_[called[i]].empty()) add(rules_[called[i]].states[0]);
      }
      most = std::max(most, called.size());
      if (most >= enough) return most;
    }
  }
  return most;
}

absl::StatusOr<proto::Constraint> Grammar::Finish(uint32_t root, absl::Span<const uint32_t> end_tokens) const {
  std::vector<Dfa> rules = rules_;
  DropUnproductive(&rules);
  if (rules[root].empty()) return absl::InvalidArgumentError("no answer satisfies it");

  std::vector<uint32_t> order = {root};
  std::vector<uint32_t> first_state(rules.size(), 0);
  std::vector<bool> is_used(rules.size(), false);
  is_used[root] = true;
  uint32_t num_states = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    first_state[order[i]] = num_states;
    num_states += static_cast<uint32_t>(rules[order[i]].states.size());
    for (const Dfa::State& state : rules[order[i]].states) {
      for (const auto& [called, to] : state.calls) {
        if (is_used[called]) continue;
        is_used[called] = true;
        order.push_back(called);
      }
    }
  }
  std::vector<int> seen(rules.size(), 0);
  for (const uint32_t rule : order) {
    if (seen[rule] == 0 && CallsItselfAtOnce(rules, rule, &seen)) {
      return absl::InvalidArgumentError("refers to itself with nothing in between");
    }
  }

  proto::Constraint constraint;
  std::map<CharClass, uint32_t> set_of;
  for (const uint32_t rule : order) {
    TANDEM_CHECK(rule == root || !rules[rule].states[0].is_accepting, "a rule that is called reads something");
    const uint32_t base = first_state[rule];
    for (const Dfa::State& state : rules[rule].states) {
      proto::Constraint::State* out = constraint.add_states();
      out->set_is_accepting(state.is_accepting);
      for (const auto& [chars, to] : state.chars) {
        const auto [it, is_new] = set_of.emplace(chars, static_cast<uint32_t>(set_of.size()));
        if (is_new) {
          proto::Constraint::CharSet* set = constraint.add_char_sets();
          for (const CharClass::Range& range : chars.ranges()) {
            set->add_bounds(range.first);
            set->add_bounds(range.last);
          }
        }
        out->add_chars(it->second);
        out->add_chars(base + static_cast<uint32_t>(to));
      }
      for (const auto& [token, to] : state.tokens) {
        out->add_tokens(token);
        out->add_tokens(base + static_cast<uint32_t>(to));
      }
      for (const auto& [called, to] : state.calls) {
        out->add_calls(first_state[called]);
        out->add_calls(base + static_cast<uint32_t>(to));
      }
    }
  }
  constraint.set_first_state(first_state[root]);
  constraint.mutable_end_tokens()->Add(end_tokens.begin(), end_tokens.end());
  if (constraint.ByteSizeLong() > kConstraintBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("takes ", constraint.ByteSizeLong(), " bytes, at most ", kConstraintBytesMax));
  }
  return constraint;
}

}  // namespace tandem::router

#include "router/constraints/ebnf.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "router/constraints/ebnf_parser.h"

namespace tandem::router {
namespace {

// Of the automaton that a rule is written as.
constexpr int64_t kSizeMax = 16 * kConstraintStatesMax;
constexpr int64_t kInlineSizeMax = 64;  // of what a rule is written as
constexpr size_t kCallsAtOnceMax = 256;

class Compiler {
 public:
  Compiler(std::vector<EbnfRule> rules, Grammar* grammar)
      : rules_(std::move(rules)), grammar_(*grammar), ids_(rules_.size(), kNone) {}

  absl::Status Add(Nfa* nfa, int from, int to) {
    FindNullable();
    FindCycles(&Compiler::AddFirstCalls, &left_cycle_of_);
    FindCycles(&Compiler::AddLastCalls, &tail_cycle_of_);
    FindSizes();
    RETURN_IF_ERROR(CheckNoLeftRecursion());
    AddCall(nfa, from, kRoot, to);
    for (size_t i = 0; i < called_.size(); ++i) RETURN_IF_ERROR(Define(called_[i]));
    if (grammar_.MostCallsAtOnce(kCallsAtOnceMax + 1) > kCallsAtOnceMax) {
      return absl::ResourceExhaustedError(absl::StrCat("more than ", kCallsAtOnceMax, " rules may begin at one place"));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr int64_t kNotInline = kInlineSizeMax + 1;
  using Rules = std::vector<uint32_t>;

  bool IsNullable(const Expression& expression) const {
    const auto is_nullable = [this](const Expression& part) { return IsNullable(part); };
    switch (expression.kind) {
      case Expression::Kind::kChars:
        return false;
      case Expression::Kind::kSequence:
        return std::all_of(expression.parts.begin(), expression.parts.end(), is_nullable);
      case Expression::Kind::kAlternatives:
        return std::any_of(expression.parts.begin(), expression.parts.end(), is_nullable);
      case Expression::Kind::kRepeat:
        return expression.min == 0 || IsNullable(expression.parts[0]);
      case Expression::Kind::kCall:
        return is_nullable_[expression.rule];
    }
    return false;
  }

  void FindNullable() {
    is_nullable_.assign(rules_.size(), false);
    for (bool has_grown = true; std::exchange(has_grown, false);) {
      for (size_t i = 0; i < rules_.size(); ++i) {
        if (is_nullable_[i] || !IsNullable(rules_[i].body)) continue;
        is_nullable_[i] = has_grown = true;
      }
    }
  }

  // Rules that may be called before anything is read.
  void AddFirstCalls(const Expression& expression, Rules* calls) const {
    if (expression.kind == Expression::Kind::kCall) calls->push_back(expression.rule);
    for (const Expression& part : expression.parts) {
      if (expression.kind == Expression::Kind::kRepeat && expression.max == 0) return;
      AddFirstCalls(part, calls);
      if (expression.kind == Expression::Kind::kSequence && !IsNullable(part)) return;
    }
  }

  // Rules that are called where nothing of the rule can follow; as ExpressionWriter sees it.
  void AddLastCalls(const Expression& expression, Rules* calls) const {
    switch (expression.kind) {
      case Expression::Kind::kChars:
        return;
      case Expression::Kind::kCall:
        return calls->push_back(expression.rule);
      case Expression::Kind::kSequence:
        if (!expression.parts.empty()) AddLastCalls(expression.parts.back(), calls);
        return;
      case Expression::Kind::kAlternatives:
        for (const Expression& part : expression.parts) AddLastCalls(part, calls);
        return;
      case Expression::Kind::kRepeat:
        if (expression.max > 0) AddLastCalls(expression.parts[0], calls);
        return;
    }
  }

  void AddAllCalls(const Expression& expression, Rules* calls) const {
    if (expression.kind == Expression::Kind::kCall) calls->push_back(expression.rule);
    for (const Expression& part : expression.parts) AddAllCalls(part, calls);
  }

  // Sizes of rules written in place with all that they call; kNotInline where that is too much, or without end.
  void FindSizes() {
    Rules cycle_of;
    const Rules callees_first = FindCycles(&Compiler::AddAllCalls, &cycle_of);
    size_.assign(rules_.size(), kNotInline);
    for (const uint32_t rule : callees_first) {
      if (cycle_of[rule] != kNone) continue;
      const int64_t size = 1 + SizeOf(rules_[rule].body);
      if (size <= kInlineSizeMax) size_[rule] = size;
    }
  }

  int64_t SizeOf(const Expression& expression) const {
    int64_t size = 1;
    if (expression.kind == Expression::Kind::kChars) size += static_cast<int64_t>(expression.chars.ranges().size());
    if (expression.kind == Expression::Kind::kCall) size += size_[expression.rule];
    for (const Expression& part : expression.parts) size = std::min(kNotInline, size + SizeOf(part));
    if (expression.kind == Expression::Kind::kRepeat) size *= std::max({1, expression.min, expression.max});
    return std::min(kNotInline, size);
  }

  // Strongly connected components of a graph of rules, by Tarjan's algorithm without recursion: rules of one cycle get
  // one number, which is kNone for those of no cycle. Returns the rules, those that are called before their callers.
  Rules FindCycles(void (Compiler::*add_calls)(const Expression&, Rules*) const, Rules* cycle_of) const {
    Rules callees_first;
    const size_t size = rules_.size();
    std::vector<Rules> calls(size);
    for (size_t i = 0; i < size; ++i) {
      (this->*add_calls)(rules_[i].body, &calls[i]);
      std::sort(calls[i].begin(), calls[i].end());
      calls[i].erase(std::unique(calls[i].begin(), calls[i].end()), calls[i].end());
    }
    cycle_of->assign(size, kNone);
    Rules order(size, kNone), lowest(size, kNone), stack;
    std::vector<bool> is_open(size, false);
    struct Visit {
      uint32_t rule;
      size_t next;
    };
    uint32_t num_seen = 0;
    for (uint32_t begin = 0; begin < size; ++begin) {
      if (order[begin] != kNone) continue;
      std::vector<Visit> visits = {{begin, 0}};
      while (!visits.empty()) {
        const uint32_t rule = visits.back().rule;
        if (visits.back().next == 0) {
          order[rule] = lowest[rule] = num_seen++;
          stack.push_back(rule);
          is_open[rule] = true;
        }
        if (visits.back().next < calls[rule].size()) {
          const uint32_t called = calls[rule][visits.back().next++];
          if (order[called] == kNone) {
            visits.push_back({called, 0});
          } else if (is_open[called]) {
            lowest[rule] = std::min(lowest[rule], order[called]);
          }
          continue;
        }
        visits.pop_back();
        if (!visits.empty()) lowest[visits.back().rule] = std::min(lowest[visits.back().rule], lowest[rule]);
        if (lowest[rule] != order[rule]) continue;
        const bool is_cycle = stack.back() != rule || std::binary_search(calls[rule].begin(), calls[rule].end(), rule);
        uint32_t member = kNone;
        do {
          member = stack.back();
          stack.pop_back();
          is_open[member] = false;
          callees_first.push_back(member);
          if (is_cycle) (*cycle_of)[member] = rule;
        } while (member != rule);
      }
    }
    return callees_first;
  }

  absl::Status CheckNoLeftRecursion() const {
    for (uint32_t rule = 0; rule < rules_.size(); ++rule) {
      if (left_cycle_of_[rule] == kNone) continue;
      std::vector<std::string> names;
      for (uint32_t other = rule; other < rules_.size() && names.size() < 8; ++other) {
        if (left_cycle_of_[other] == left_cycle_of_[rule]) names.push_back(rules_[other].name);
      }
      return absl::InvalidArgumentError(
          absl::StrCat("left recursion is not supported: ", absl::StrJoin(names, ", "),
                       names.size() == 1 ? " begins with itself" : " begin with each other",
                       "; lists are written as item (\",\" item)*"));
    }
    return absl::OkStatus();
  }

  void AddCall(Nfa* nfa, int from, uint32_t rule, int to) {
    if (ids_[rule] == kNone) {
      ids_[rule] = grammar_.Reserve();
      called_.push_back(rule);
    }
    nfa->AddCall(from, ids_[rule], to);
    if (is_nullable_[rule]) nfa->AddEpsilon(from, to);
  }

  absl::Status Define(uint32_t rule) {
    Nfa nfa;
    const int end = nfa.AddState();
    nfa.SetAccepting(end);
    // Where in this automaton the rules of the cycle begin that it goes on with.
    std::vector<std::pair<uint32_t, int>> begins = {{rule, Nfa::kStart}};
    const auto begin_of = [&](uint32_t other) {
      for (const auto& [known, begin] : begins) {
        if (known == other) return begin;
      }
      begins.emplace_back(other, nfa.AddState());
      return begins.back().second;
    };
    ExpressionWriter* writer_in_place = nullptr;
    const auto write_call = [&](uint32_t called, int from, int to, bool is_last) {
      const bool goes_on = is_last && tail_cycle_of_[called] != kNone && tail_cycle_of_[called] == tail_cycle_of_[rule];
      if (size_[called] < kNotInline) {
        writer_in_place->Write(rules_[called].body, from, to, is_last);
      } else {
        goes_on ? nfa.AddEpsilon(from, begin_of(called)) : AddCall(&nfa, from, called, to);
      }
    };
    ExpressionWriter writer(&nfa, kSizeMax, write_call);
    writer_in_place = &writer;
    for (size_t i = 0; i < begins.size(); ++i) {
      const auto [member, begin] = begins[i];
      writer.Write(rules_[member].body, begin, end);
    }
    grammar_.budget()->left -= nfa.size();
    if (writer.is_full()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("rule ", rules_[rule].name, " takes more than ", kConstraintStatesMax, " states"));
    }
    const absl::Status status = grammar_.DefineNonEmpty(ids_[rule], nfa);
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat("rule ", rules_[rule].name, " ", std::string(status.message())));
  }

  const std::vector<EbnfRule> rules_;
  Grammar& grammar_;
  std::vector<bool> is_nullable_;
  Rules left_cycle_of_;
  Rules tail_cycle_of_;
  std::vector<int64_t> size_;
  Rules ids_;     // in the grammar; kNone: not called yet
  Rules called_;  // in order of their first call
};

}  // namespace

absl::Status AddEbnf(absl::string_view text, Grammar* grammar, Nfa* nfa, int from, int to) {
  ASSIGN_OR_RETURN(std::vector<EbnfRule> rules, ParseEbnf(text));
  return Compiler(std::move(rules), grammar).Add(nfa, from, to);
}

}  // namespace tandem::router

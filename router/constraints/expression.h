// What a regular expression or the body of a rule reads, as a tree, and how it becomes part of an automaton.
//
// Repeats are written out as often as they must come, so a short text may ask for a large automaton: writing stops at a
// bound, and whoever wrote looks whether it did. Tested by pattern_test.cc and ebnf_test.cc.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "router/constraints/automaton.h"

namespace tandem::router {

struct Expression {
  enum class Kind { kChars, kSequence, kAlternatives, kRepeat, kCall };

  static Expression Chars(CharClass chars) { return {.kind = Kind::kChars, .chars = std::move(chars)}; }
  static Expression Repeat(Expression part, int min, int max) {
    Expression repeat = {.kind = Kind::kRepeat, .min = min, .max = max};
    repeat.parts.push_back(std::move(part));
    return repeat;
  }
  static Expression Call(uint32_t rule) { return {.kind = Kind::kCall, .rule = rule}; }

  Kind kind = Kind::kSequence;  // of no parts: the empty text
  CharClass chars;
  std::vector<Expression> parts;
  int min = 0;        // of kRepeat
  int max = -1;       // -1: no bound
  uint32_t rule = 0;  // of kCall: whatever the caller knows it by
};

class ExpressionWriter final {
 public:
  // Writes a call between two states. is_last: nothing of the whole expression can follow it.
  using CallWriter = absl::FunctionRef<void(uint32_t rule, int from, int to, bool is_last)>;

  // Nothing is written once the automaton is larger than size_max (Nfa::size()). write_call: outlives the writer.
  ExpressionWriter(Nfa* nfa, int64_t size_max, CallWriter write_call)
      : nfa_(*nfa), size_max_(size_max), write_call_(write_call) {}

  // Between two states; no edge leads back to `from` or away from `to`.
  void Write(const Expression& expression, int from, int to, bool is_last = true);

  bool is_full() const { return nfa_.size() > size_max_; }

 private:
  void WriteRepeat(const Expression& repeat, int from, int to, bool is_last);

  Nfa& nfa_;
  const int64_t size_max_;
  const CallWriter write_call_;
};

}  // namespace tandem::router

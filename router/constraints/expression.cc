#include "router/constraints/expression.h"

#include <utility>

namespace tandem::router {

void ExpressionWriter::Write(const Expression& expression, int from, int to, bool is_last) {
  if (is_full()) return;
  switch (expression.kind) {
    case Expression::Kind::kChars:
      return nfa_.AddChars(from, expression.chars, to);
    case Expression::Kind::kCall:
      return write_call_(expression.rule, from, to, is_last);
    case Expression::Kind::kAlternatives:
      for (const Expression& part : expression.parts) Write(part, from, to, is_last);
      return;
    case Expression::Kind::kRepeat:
      return WriteRepeat(expression, from, to, is_last);
    case Expression::Kind::kSequence:
      break;
  }
  if (expression.parts.empty()) return nfa_.AddEpsilon(from, to);
  for (size_t i = 0; i < expression.parts.size(); ++i) {
    const bool is_end = i + 1 == expression.parts.size();
    const int next = is_end ? to : nfa_.AddState();
    Write(expression.parts[i], from, next, is_last && is_end);
    from = next;
  }
}

void ExpressionWriter::WriteRepeat(const Expression& repeat, int from, int to, bool is_last) {
  const Expression& part = repeat.parts[0];
  const auto write_one = [&](bool is_end) {
    const int next = nfa_.AddState();
    Write(part, from, next, is_end);
    from = next;
  };
  for (int i = 0; i < repeat.min && !is_full(); ++i) write_one(is_last && i + 1 == repeat.max);
  if (repeat.max < 0) {
    const int loop = nfa_.AddState();
    nfa_.AddEpsilon(from, loop);
    const int again = nfa_.AddState();
    Write(part, loop, again, /*is_last=*/false);
    nfa_.AddEpsilon(again, loop);
    return nfa_.AddEpsilon(loop, to);
  }
  for (int i = repeat.min; i < repeat.max && !is_full(); ++i) {
    nfa_.AddEpsilon(from, to);
    write_one(is_last && i + 1 == repeat.max);
  }
  nfa_.AddEpsilon(from, to);
}

}  // namespace tandem::router

#include "router/constraints/pattern.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "router/constraints/char_syntax.h"
#include "router/constraints/expression.h"

namespace tandem::router {
namespace {

constexpr int kGroupDepthMax = 64;
// Of the automaton that a pattern is written as, for each state that its deterministic form may have.
constexpr int64_t kSizePerState = 16;

class Parser {
 public:
  explicit Parser(absl::string_view pattern) : cursor_(pattern, SyntaxCursor::Places::kCharacters) {}

  // With what may stand before and behind it.
  absl::StatusOr<Expression> Whole(PatternReach reach) {
    const bool is_anywhere = reach == PatternReach::kAnywhere;
    const auto anything = [] { return Expression::Repeat(Expression::Chars(CharClass::All()), 0, -1); };
    Expression whole = {.kind = Expression::Kind::kAlternatives};
    do {
      Expression alternative;
      if (!cursor_.Take('^') && is_anywhere) alternative.parts.push_back(anything());
      ASSIGN_OR_RETURN(Expression sequence, Sequence(0));
      alternative.parts.push_back(std::move(sequence));
      if (!cursor_.Take('$') && is_anywhere) alternative.parts.push_back(anything());
      whole.parts.push_back(std::move(alternative));
    } while (cursor_.Take('|'));
    if (!cursor_.IsAtEnd()) {
      return cursor_.Bad(cursor_.Peek() == ')' ? "a ) that closes nothing must be escaped" : kAnchors);
    }
    return whole;
  }

 private:
  static constexpr char kAnchors[] = "^ and $ are supported at the ends of the pattern or of its alternatives";

  absl::StatusOr<Expression> Alternatives(int depth) {
    Expression node = {.kind = Expression::Kind::kAlternatives};
    do {
      ASSIGN_OR_RETURN(Expression sequence, Sequence(depth));
      node.parts.push_back(std::move(sequence));
    } while (cursor_.Take('|'));
    return node;
  }

  absl::StatusOr<Expression> Sequence(int depth) {
    Expression node;
    while (!cursor_.IsAtEnd() && cursor_.Peek() != '|' && cursor_.Peek() != ')') {
      if (cursor_.Peek() == '$' && depth == 0) break;
      ASSIGN_OR_RETURN(Expression atom, Atom(depth));
      ASSIGN_OR_RETURN(atom, Repeats(std::move(atom)));
      node.parts.push_back(std::move(atom));
    }
    return node;
  }

  absl::StatusOr<Expression> Repeats(Expression atom) {
    ASSIGN_OR_RETURN(const std::optional<Counts> counts, ReadRepeat(&cursor_));
    if (!counts.has_value()) return atom;
    cursor_.Take('?');  // lazy: the same texts
    if (cursor_.Peek() == '+') return cursor_.Bad("possessive repeats are not supported");
    if (IsAtRepeat(cursor_)) return cursor_.Bad("nothing to repeat");
    return Expression::Repeat(std::move(atom), counts->min, counts->max);
  }

  absl::StatusOr<Expression> Atom(int depth) {
    switch (cursor_.Peek()) {
      case '(':
        return Group(depth);
      case '[': {
        ASSIGN_OR_RETURN(CharClass chars, ReadBrackets(&cursor_));
        return Expression::Chars(std::move(chars));
      }
      case '.':
        cursor_.Skip(1);
        return Expression::Chars(AnyButLineEnds());
      case '^':
      case '$':
        return cursor_.Bad(kAnchors);
      case '*':
      case '+':
      case '?':
      case '{':
        return cursor_.Bad("nothing to repeat");
      case ']':
      case '}':
        return cursor_.Bad("a ] or } that closes nothing must be escaped");
      case '\\': {
        const size_t begin = cursor_.at();
        cursor_.Skip(1);
        ASSIGN_OR_RETURN(ReadClass escaped, ReadEscape(&cursor_));
        if (escaped.sure.empty()) return cursor_.Bad("a class without characters", begin);
        return Expression::Chars(std::move(escaped.sure));
      }
      default:
        return Expression::Chars(CharClass::Of(cursor_.Next()));
    }
  }

  absl::StatusOr<Expression> Group(int depth) {
    const size_t begin = cursor_.at();
    if (depth == kGroupDepthMax) return cursor_.Bad(absl::StrCat("groups nested deeper than ", kGroupDepthMax));
    cursor_.Skip(1);
    if (cursor_.Take('?')) RETURN_IF_ERROR(GroupKind(begin));
    ASSIGN_OR_RETURN(Expression inside, Alternatives(depth + 1));
    if (!cursor_.Take(')')) return cursor_.Bad("a group without its end", begin);
    return inside;
  }

  // Behind `(?`.
  absl::Status GroupKind(size_t begin) {
    if (cursor_.Take(':')) return absl::OkStatus();
    if (cursor_.IsAt("=") || cursor_.IsAt("!")) return cursor_.Bad("look-ahead is not supported", begin);
    if (cursor_.IsAt("<=") || cursor_.IsAt("<!")) return cursor_.Bad("look-behind is not supported", begin);
    if (cursor_.IsAt("P=")) return cursor_.Bad("references are not supported", begin);
    if (cursor_.IsAt("P<")) cursor_.Skip(1);
    if (!cursor_.Take('<')) return cursor_.Bad("flags and other kinds of groups are not supported", begin);
    while (!cursor_.IsAtEnd() && cursor_.Peek() != '>') cursor_.Skip(1);
    return cursor_.Take('>') ? absl::OkStatus() : cursor_.Bad("a name without its >", begin);
  }

  SyntaxCursor cursor_;
};

}  // namespace

absl::StatusOr<Dfa> CompilePattern(absl::string_view pattern, PatternReach reach, int num_states_max,
                                   CompileBudget* budget) {
  ASSIGN_OR_RETURN(const Expression whole, Parser(pattern).Whole(reach));
  Nfa nfa;
  const int end = nfa.AddState();
  nfa.SetAccepting(end);
  const auto no_calls = [](uint32_t, int, int, bool) { TANDEM_CHECK(false, "a pattern calls no rules"); };
  ExpressionWriter writer(&nfa, kSizePerState * num_states_max, no_calls);
  writer.Write(whole, Nfa::kStart, end);
  if (writer.is_full()) {
    return absl::ResourceExhaustedError(absl::StrCat("takes more than ", num_states_max, " states"));
  }
  return nfa.Determinize(num_states_max, budget);
}

}  // namespace tandem::router

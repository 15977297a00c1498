#include "router/constraints/ebnf_parser.h"

#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/constraints/char_syntax.h"

namespace tandem::router {
namespace {

constexpr int kGroupDepthMax = 64;
constexpr size_t kRulesMax = 2048;
constexpr const char* kFunctions[] = {"TagDispatch", "TokenTagDispatch", "Token", "ExcludeToken"};

bool IsNameStart(uint32_t c) { return c < 0x80 && (absl::ascii_isalpha(c) || c == '_' || c == '-' || c == '.'); }
bool IsNameChar(uint32_t c) { return IsNameStart(c) || (c >= '0' && c <= '9'); }

class Parser {
 public:
  explicit Parser(absl::string_view text) : cursor_(text, SyntaxCursor::Places::kLines) { IndexOf("root", 0); }

  absl::StatusOr<std::vector<EbnfRule>> Rules() {
    SkipSpace();
    while (!cursor_.IsAtEnd()) RETURN_IF_ERROR(Rule());
    for (const Mention& mention : mentions_) {
      if (mention.is_defined) continue;
      const std::string& name = rules_[&mention - mentions_.data()].name;
      if (name == "root") return absl::InvalidArgumentError("there is no rule named root");
      return cursor_.Bad(absl::StrCat("there is no rule named ", name, ", called"), mention.at);
    }
    return std::move(rules_);
  }

 private:
  struct Mention {
    size_t at = 0;  // the first
    bool is_defined = false;
  };

  // White space and comments. Whether a line has ended.
  bool SkipSpace() {
    bool has_line_end = false;
    while (!cursor_.IsAtEnd()) {
      const uint32_t c = cursor_.Peek();
      if (c == '#') {
        while (!cursor_.IsAtEnd() && cursor_.Peek() != '\n' && cursor_.Peek() != '\r') cursor_.Skip(1);
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        has_line_end = has_line_end || c == '\n' || c == '\r';
        cursor_.Skip(1);
      } else {
        break;
      }
    }
    return has_line_end;
  }

  uint32_t IndexOf(const std::string& name, size_t at) {
    const auto [it, is_new] = index_of_.emplace(name, static_cast<uint32_t>(rules_.size()));
    if (is_new) {
      rules_.push_back({.name = name});
      mentions_.push_back({.at = at});
    }
    return it->second;
  }

  std::string Name() {
    std::string name;
    while (IsNameChar(cursor_.Peek())) name.push_back(static_cast<char>(cursor_.Next()));
    return name;
  }

  absl::Status Rule() {
    const size_t begin = cursor_.at();
    if (!IsNameStart(cursor_.Peek())) return cursor_.Bad("the name of a rule is expected");
    const std::string name = Name();
    if (cursor_.Peek() == '[') return cursor_.Bad("attributes of rules are not supported");
    SkipSpace();
    if (!cursor_.IsAt("::=")) return cursor_.Bad(absl::StrCat("::= is expected behind the name ", name));
    cursor_.Skip(3);
    const uint32_t index = IndexOf(name, begin);
    if (rules_.size() > kRulesMax) return cursor_.Bad(absl::StrCat("more than ", kRulesMax, " rules"), begin);
    if (mentions_[index].is_defined) {
      return cursor_.Bad(absl::StrCat("rule ", name, " is defined for the second time"), begin);
    }
    mentions_[index].is_defined = true;
    SkipSpace();
    ASSIGN_OR_RETURN(rules_[index].body, Alternatives(0));
    if (cursor_.IsAtEnd() || has_next_rule_) {
      has_next_rule_ = false;
      return absl::OkStatus();
    }
    return cursor_.Bad(cursor_.Peek() == ')' ? "a ) that closes nothing" : "unexpected character");
  }

  absl::StatusOr<Expression> Alternatives(int depth) {
    Expression node = {.kind = Expression::Kind::kAlternatives};
    do {
      SkipSpace();
      ASSIGN_OR_RETURN(Expression sequence, Sequence(depth));
      node.parts.push_back(std::move(sequence));
    } while (cursor_.Take('|'));
    return node;
  }

  // Ends where an alternative, a group or the rule ends, with white space behind it read.
  absl::StatusOr<Expression> Sequence(int depth) {
    Expression node;
    bool begins_line = false;
    while (!cursor_.IsAtEnd() && cursor_.Peek() != '|' && cursor_.Peek() != ')') {
      if (IsNameStart(cursor_.Peek()) && IsHead()) {
        if (!begins_line || depth > 0) {
          return cursor_.Bad(depth > 0 ? "a group without its end before the next rule"
                                       : "a rule must begin on a line of its own");
        }
        has_next_rule_ = true;
        break;
      }
      ASSIGN_OR_RETURN(Expression element, Element(depth));
      ASSIGN_OR_RETURN(element, Repeats(std::move(element)));
      node.parts.push_back(std::move(element));
      begins_line = SkipSpace();
    }
    if (node.parts.empty()) return cursor_.Bad("an alternative of nothing must be written as \"\"");
    return node;
  }

  // Whether the name that begins here is that of the next rule.
  bool IsHead() const {
    size_t ahead = 0;
    while (IsNameChar(cursor_.Peek(ahead))) ++ahead;
    const auto is_space = [](uint32_t c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
    if (cursor_.Peek(ahead) == '[') {  // perhaps its attributes
      size_t end = ahead;
      while (cursor_.Peek(end) != ']' && cursor_.Peek(end) != '\n' && cursor_.Peek(end) != 0) ++end;
      size_t behind = end + 1;
      while (is_space(cursor_.Peek(behind))) ++behind;
      if (IsAssign(behind)) return true;
    }
    while (is_space(cursor_.Peek(ahead))) ++ahead;
    return IsAssign(ahead);
  }

  bool IsAssign(size_t ahead) const {
    return cursor_.Peek(ahead) == ':' && cursor_.Peek(ahead + 1) == ':' && cursor_.Peek(ahead + 2) == '=';
  }

  absl::StatusOr<Expression> Repeats(Expression element) {
    SkipBlanks();
    const size_t begin = cursor_.at();
    ASSIGN_OR_RETURN(const std::optional<Counts> counts, ReadRepeat(&cursor_));
    if (!counts.has_value()) return element;
    if (IsAtRepeat(cursor_)) return cursor_.Bad("nothing to repeat", begin);
    return Expression::Repeat(std::move(element), counts->min, counts->max);
  }

  void SkipBlanks() {
    while (cursor_.Peek() == ' ' || cursor_.Peek() == '\t') cursor_.Skip(1);
  }

  absl::StatusOr<Expression> Element(int depth) {
    const size_t begin = cursor_.at();
    const uint32_t c = cursor_.Peek();
    if (c == '"') return Literal();
    if (c == '[') {
      ASSIGN_OR_RETURN(CharClass chars, ReadBrackets(&cursor_));
      return Expression::Chars(std::move(chars));
    }
    if (c == '(') return Group(depth);
    if (IsNameStart(c)) {
      const std::string name = Name();
      for (const char* function : kFunctions) {
        if (name == function && cursor_.Peek() == '(') {
          return cursor_.Bad(absl::StrCat(name, "(..) is not supported"), begin);
        }
      }
      return Expression::Call(IndexOf(name, begin));
    }
    if (c == '*' || c == '+' || c == '?' || c == '{') return cursor_.Bad("nothing to repeat");
    return cursor_.Bad("a literal, a class, a group or the name of a rule is expected");
  }

  absl::StatusOr<Expression> Group(int depth) {
    const size_t begin = cursor_.at();
    if (depth == kGroupDepthMax) return cursor_.Bad(absl::StrCat("groups nested deeper than ", kGroupDepthMax));
    cursor_.Skip(1);
    if (cursor_.Peek() == '=') return cursor_.Bad("look-ahead is not supported", begin);
    ASSIGN_OR_RETURN(Expression inside, Alternatives(depth + 1));
    if (!cursor_.Take(')')) return cursor_.Bad("a group without its end", begin);
    return inside;
  }

  absl::StatusOr<Expression> Literal() {
    const size_t begin = cursor_.at();
    cursor_.Skip(1);
    Expression text;
    while (!cursor_.Take('"')) {
      if (cursor_.IsAtEnd() || cursor_.Peek() == '\n') return cursor_.Bad("a literal without its end", begin);
      const size_t at = cursor_.at();
      ReadClass letter = ReadClass::Of(cursor_.Next());
      if (letter.sure == CharClass::Of('\\')) {
        ASSIGN_OR_RETURN(letter, ReadEscape(&cursor_));
        if (!letter.is_letter) return cursor_.Bad("classes stand in brackets, not in literals", at);
      }
      text.parts.push_back(Expression::Chars(std::move(letter.sure)));
    }
    return text;
  }

  SyntaxCursor cursor_;
  std::vector<EbnfRule> rules_;
  std::vector<Mention> mentions_;  // of each rule
  absl::flat_hash_map<std::string, uint32_t> index_of_;
  bool has_next_rule_ = false;
};

}  // namespace

absl::StatusOr<std::vector<EbnfRule>> ParseEbnf(absl::string_view text) { return Parser(text).Rules(); }

}  // namespace tandem::router

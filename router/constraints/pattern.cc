#include "router/constraints/pattern.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::router {
namespace {

constexpr int kGroupDepthMax = 64;
constexpr int kRepeatMax = 10000;

// What a pattern reads, as a tree: repeats are written out several times.
struct Node {
  enum class Kind { kChars, kSequence, kAlternatives, kRepeat };
  Kind kind = Kind::kSequence;
  CharClass chars;
  std::vector<Node> parts;
  int min = 0;
  int max = -1;  // of kRepeat; -1: no bound
};

CharClass Ascii() { return CharClass({{0, 0x7F}}); }
CharClass Digits() { return CharClass({{'0', '9'}}); }
CharClass WordChars() { return CharClass({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
CharClass Spaces() { return CharClass({{'\t', '\r'}, {' ', ' '}}); }
CharClass AnyButLineEnds() { return CharClass({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement(); }

class Parser {
 public:
  explicit Parser(absl::string_view pattern) : chars_(CharsOf(pattern)) {}

  // The whole, with what may stand before and behind it.
  absl::StatusOr<Node> Whole() {
    Node whole = {.kind = Node::Kind::kAlternatives};
    do {
      Node anything = {.kind = Node::Kind::kRepeat};
      anything.parts.push_back({.kind = Node::Kind::kChars, .chars = CharClass::All()});
      Node alternative;
      if (!Take('^')) alternative.parts.push_back(anything);
      ASSIGN_OR_RETURN(Node sequence, Sequence(0));
      alternative.parts.push_back(std::move(sequence));
      if (!Take('$')) alternative.parts.push_back(std::move(anything));
      whole.parts.push_back(std::move(alternative));
    } while (Take('|'));
    if (!IsAtEnd()) return Unexpected();
    return whole;
  }

 private:
  bool IsAtEnd() const { return at_ == chars_.size(); }
  uint32_t Peek() const { return IsAtEnd() ? 0 : chars_[at_]; }
  bool Take(char c) {
    if (IsAtEnd() || chars_[at_] != static_cast<uint32_t>(c)) return false;
    ++at_;
    return true;
  }
  absl::Status Bad(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(what, " at character ", at_));
  }
  absl::Status Unexpected() const { return Bad(IsAtEnd() ? "unexpected end" : "unexpected character"); }

  absl::StatusOr<Node> Alternatives(int depth) {
    Node node = {.kind = Node::Kind::kAlternatives};
    do {
      ASSIGN_OR_RETURN(Node sequence, Sequence(depth));
      node.parts.push_back(std::move(sequence));
    } while (Take('|'));
    return node;
  }

  absl::StatusOr<Node> Sequence(int depth) {
    Node node;
    while (!IsAtEnd() && Peek() != '|' && Peek() != ')') {
      if (Peek() == '$' && depth == 0) break;
      ASSIGN_OR_RETURN(Node atom, Atom(depth));
      ASSIGN_OR_RETURN(atom, Repeats(std::move(atom)));
      node.parts.push_back(std::move(atom));
    }
    return node;
  }

  absl::StatusOr<Node> Repeats(Node atom) {
    int min = 0, max = -1;
    if (Take('*')) {
    } else if (Take('+')) {
      min = 1;
    } else if (Take('?')) {
      max = 1;
    } else if (Peek() == '{') {
      ASSIGN_OR_RETURN(const bool is_repeat, Counts(&min, &max));
      if (!is_repeat) return Bad("a { that begins no count must be escaped");
    } else {
      return atom;
    }
    Take('?');
    if (Peek() == '*' || Peek() == '+' || Peek() == '?' || Peek() == '{') return Bad("nothing to repeat");
    Node repeat = {.kind = Node::Kind::kRepeat, .min = min, .max = max};
    repeat.parts.push_back(std::move(atom));
    return repeat;
  }

  std::optional<int> Number() {
    int64_t number = 0;
    const size_t begin = at_;
    while (Peek() >= '0' && Peek() <= '9' && number <= kRepeatMax) number = number * 10 + (chars_[at_++] - '0');
    if (at_ == begin) return std::nullopt;
    return static_cast<int>(number);
  }

  absl::StatusOr<bool> Counts(int* min, int* max) {
    Take('{');
    const std::optional<int> first = Number();
    if (!first.has_value()) return false;
    *min = *max = *first;
    if (Take(',')) *max = Number().value_or(-1);
    if (!Take('}')) return false;
    if (*min > kRepeatMax || *max > kRepeatMax) return Bad(absl::StrCat("a count above ", kRepeatMax));
    if (*max >= 0 && *max < *min) return Bad("a count whose end is below its beginning");
    return true;
  }

  absl::StatusOr<Node> Atom(int depth) {
    const uint32_t c = Peek();
    switch (c) {
      case '(':
        return Group(depth);
      case '[':
        return Class();
      case '.':
        ++at_;
        return Chars(AnyButLineEnds());
      case '^':
      case '$':
        return Bad("^ and $ are supported at the ends of the pattern or of its alternatives");
      case '*':
      case '+':
      case '?':
      case '{':
        return Bad("nothing to repeat");
      case ']':
      case '}':
        return Bad("a ] or } that closes nothing must be escaped");
      case '\\': {
        ++at_;
        ASSIGN_OR_RETURN(const CharClass escaped, Escape(nullptr));
        return Chars(escaped);
      }
      default:
        ++at_;
        return Chars(CharClass::Of(c));
    }
  }

  static Node Chars(CharClass chars) { return {.kind = Node::Kind::kChars, .chars = std::move(chars)}; }

  absl::StatusOr<Node> Group(int depth) {
    if (depth == kGroupDepthMax) return Bad(absl::StrCat("groups nested deeper than ", kGroupDepthMax));
    Take('(');
    if (Take('?')) {
      if (Take('<')) {
        if (Peek() == '=' || Peek() == '!') return Bad("look-behind is not supported");
        while (!IsAtEnd() && Peek() != '>') ++at_;
        if (!Take('>')) return Unexpected();
      } else if (!Take(':')) {
        return Bad("look-ahead and flags are not supported");
      }
    }
    ASSIGN_OR_RETURN(Node inside, Alternatives(depth + 1));
    if (!Take(')')) return Bad("a group without its end");
    return inside;
  }

  // Behind the backslash. is_negative: set where it is one of \D \W \S; nullptr: outside of a class.
  absl::StatusOr<CharClass> Escape(bool* has_class) {
    if (IsAtEnd()) return Bad("a \\ at the end");
    const uint32_t c = chars_[at_++];
    const auto class_of = [&](const CharClass& chars) {
      if (has_class != nullptr) *has_class = true;
      return chars;
    };
    switch (c) {
      case 'd':
        return class_of(Digits());
      case 'D':
        return class_of(Ascii().Minus(Digits()));
      case 'w':
        return class_of(WordChars());
      case 'W':
        return class_of(Ascii().Minus(WordChars()));
      case 's':
        return class_of(Spaces());
      case 'S':
        return class_of(Ascii().Minus(Spaces()));
      case 't':
        return CharClass::Of('\t');
      case 'n':
        return CharClass::Of('\n');
      case 'r':
        return CharClass::Of('\r');
      case 'f':
        return CharClass::Of('\f');
      case 'v':
        return CharClass::Of('\v');
      case 'x':
        return Hex(2);
      case 'u':
        return Hex(4);
      default:
        break;
    }
    const bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_word) {
      --at_;
      return Bad(absl::StrCat("\\", std::string(1, static_cast<char>(c)), " is not supported"));
    }
    return CharClass::Of(c);
  }

  absl::StatusOr<CharClass> Hex(int num_digits) {
    uint32_t c = 0;
    for (int i = 0; i < num_digits; ++i) {
      const uint32_t digit = Peek();
      const uint32_t value = digit >= '0' && digit <= '9'   ? digit - '0'
                             : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
                             : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                                            : 16;
      if (value == 16) return Bad("a hexadecimal digit is missing");
      c = c << 4 | value;
      ++at_;
    }
    if (c >= 0xD800 && c <= 0xDFFF) return Bad("half a surrogate pair is not supported");
    return CharClass::Of(c);
  }

  absl::StatusOr<Node> Class() {
    Take('[');
    const bool is_negated = Take('^');
    CharClass chars;
    bool has_class = false;
    while (!Take(']')) {
      if (IsAtEnd()) return Bad("a class without its end");
      bool is_class = false;
      ASSIGN_OR_RETURN(const CharClass first, ClassItem(&is_class));
      has_class = has_class || is_class;
      const bool is_range = !is_class && Peek() == '-' && at_ + 1 < chars_.size() && chars_[at_ + 1] != ']';
      if (!is_range) {
        chars = chars.Union(first);
        continue;
      }
      Take('-');
      ASSIGN_OR_RETURN(const CharClass last, ClassItem(&is_class));
      if (is_class || last.ranges()[0].first < first.ranges()[0].first) return Bad("a range whose end is below");
      chars = chars.Union(CharClass({{first.ranges()[0].first, last.ranges()[0].first}}));
    }
    if (is_negated) chars = has_class ? Ascii().Minus(chars) : chars.Complement();
    if (chars.empty()) return Bad("a class without characters");
    return Chars(chars);
  }

  absl::StatusOr<CharClass> ClassItem(bool* is_class) {
    if (IsAtEnd()) return Bad("a class without its end");
    const uint32_t c = chars_[at_++];
    if (c != '\\') return CharClass::Of(c);
    if (Peek() == '-') {
      ++at_;
      return CharClass::Of('-');
    }
    return Escape(is_class);
  }

  const std::vector<uint32_t> chars_;
  size_t at_ = 0;
};

class Writer {
 public:
  Writer(Nfa* nfa, int num_states_max) : nfa_(*nfa), num_states_max_(num_states_max) {}

  // From `from` to the state that is returned; past the bound nothing is added.
  int Write(const Node& node, int from) {
    if (is_full()) return from;
    switch (node.kind) {
      case Node::Kind::kChars: {
        const int to = nfa_.AddState();
        nfa_.AddChars(from, node.chars, to);
        return to;
      }
      case Node::Kind::kSequence:
        for (const Node& part : node.parts) from = Write(part, from);
        return from;
      case Node::Kind::kAlternatives: {
        const int to = nfa_.AddState();
        for (const Node& part : node.parts) {
          const int begin = nfa_.AddState();
          nfa_.AddEpsilon(from, begin);
          nfa_.AddEpsilon(Write(part, begin), to);
        }
        return to;
      }
      case Node::Kind::kRepeat:
        return WriteRepeat(node, from);
    }
    return from;
  }

  bool is_full() const { return nfa_.num_states() > num_states_max_; }

 private:
  int WriteRepeat(const Node& node, int from) {
    const Node& part = node.parts[0];
    for (int i = 0; i < node.min && !is_full(); ++i) from = Write(part, from);
    if (node.max < 0) {
      const int loop = nfa_.AddState();
      nfa_.AddEpsilon(from, loop);
      nfa_.AddEpsilon(Write(part, loop), loop);
      const int to = nfa_.AddState();
      nfa_.AddEpsilon(loop, to);
      return to;
    }
    const int to = nfa_.AddState();
    nfa_.AddEpsilon(from, to);
    for (int i = node.min; i < node.max && !is_full(); ++i) {
      from = Write(part, from);
      nfa_.AddEpsilon(from, to);
    }
    return to;
  }

  Nfa& nfa_;
  const int num_states_max_;
};

}  // namespace

absl::StatusOr<Dfa> CompilePattern(absl::string_view pattern, int num_states_max, CompileBudget* budget) {
  ASSIGN_OR_RETURN(const Node whole, Parser(pattern).Whole());
  Nfa nfa;
  Writer writer(&nfa, 4 * num_states_max);
  const int end = writer.Write(whole, Nfa::kStart);
  if (writer.is_full())
    return absl::ResourceExhaustedError(absl::StrCat("takes more than ", num_states_max, " states"));
  nfa.SetAccepting(end);
  return nfa.Determinize(num_states_max, budget);
}

}  // namespace tandem::router

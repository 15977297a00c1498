// Grammars against a recogniser that knows nothing of automata: random grammars over random texts, with rules that call
// each other, may be empty and end in themselves; by hand, what is refused and how it is said.
#include "router/constraints/ebnf.h"

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/constraints/constraint_probe.h"

namespace tandem::router {
namespace {

using ::tandem::testing::ConstraintProbe;

absl::StatusOr<std::shared_ptr<const proto::Constraint>> Compile(const std::string& text) {
  return testing::CompileAnswer({.form = AnswerForm{.kind = AnswerForm::Kind::kEbnf, .text = text, .field = "ebnf"}});
}

void Check(const std::string& grammar, const std::vector<const char*>& accepted,
           const std::vector<const char*>& refused) {
  const auto constraint = Compile(grammar);
  ASSERT_TRUE(constraint.ok()) << grammar << ": " << constraint.status();
  ConstraintProbe probe(**constraint);
  for (const char* text : accepted) EXPECT_TRUE(probe.Accepts(text)) << grammar << " on " << text;
  for (const char* text : refused) EXPECT_FALSE(probe.Accepts(text)) << grammar << " on " << text;
}

std::string Error(const std::string& grammar) {
  const auto constraint = Compile(grammar);
  return constraint.ok() ? "" : std::string(constraint.status().message());
}

TEST(EbnfTest, Elements) {
  Check("root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "yesno", "y"});
  Check("root ::= [a-c]{2,3} \"!\"?", {"ab", "abc", "abc!"}, {"a", "abcd", "ab!!", "!"});
  Check("root ::= (\"a\" | \"b\" \"c\")+", {"a", "bc", "abcbca"}, {"", "b", "ac"});
  Check("root ::= \"\"", {""}, {"a"});
  Check("root ::= \"\\n\\t\\\"\\\\\\x41\\u00e9\" [^\\]\\n]*", {"\n\t\"\\Aé", "\n\t\"\\Aéé世🙂"}, {"\n\t\"\\Aé]"});
  Check("root ::= \"世界\" [あ-ん]+", {"世界あん"}, {"世界", "世界a"});
  Check("# a comment\nroot ::= first # another\n  | second   \n\nfirst ::= \"1\" \nsecond::=\"2\" # last", {"1", "2"},
        {"3"});
  Check("pair ::= \"x\"\nroot ::= pair pair\r\nother ::= root", {"xx"}, {"x"});
  Check("root ::= a-b.c_1 \"!\"\na-b.c_1 ::= \"x\"", {"x!"}, {"x"});
}

TEST(EbnfTest, RulesThatMayBeEmptyAndRecursion) {
  Check("root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "())"});
  Check("root ::= ws \"a\" ws\nws ::= [ \\t]*", {"a", " a", "a  ", "  a "}, {"", " "});
  Check("root ::= a a a\na ::= b | \"x\"\nb ::= \"\"", {"", "x", "xx", "xxx"}, {"xxxx"});
  Check("expr ::= term ((\"+\" | \"-\") term)*\nterm ::= [0-9]+ | \"(\" expr \")\"\nroot ::= expr",
        {"1", "1+2-(3+4)", "((7))"}, {"", "1+", "(1", "()"});
}

// Deeper than calls may nest, where they are really within each other; as long as they like where they follow.
TEST(EbnfTest, ListsThatEndInThemselvesHaveAnyLength) {
  std::string list = "1", nested = "1";
  for (int i = 0; i < 500; ++i) list += ",1";
  for (int i = 0; i < 200; ++i) nested = "(" + nested + ")";
  for (const char* grammar :
       {"root ::= item \",\" root | item\nitem ::= \"1\"", "root ::= \"1\" rest\nrest ::= (\",\" root)?",
        "root ::= \"1\" rest | \"1\"\nrest ::= \",\" more\nmore ::= root",
        "root ::= \"1\" rest\nrest ::= \",\" \"1\" rest | \"\""}) {
    Check(grammar, {"1", "1,1", list.c_str()}, {"", "1,", ",1"});
  }
  Check("root ::= \"(\" root \")\" | \"1\"", {"((1))"}, {nested.c_str()});
}

TEST(EbnfTest, WhatIsRefusedIsNamedWithItsPlace) {
  EXPECT_EQ(Error("root ::= root \"a\" | \"a\""),
            "ebnf: left recursion is not supported: root begins with itself; lists are written as item (\",\" item)*");
  EXPECT_EQ(
      Error("root ::= a\na ::= b \"x\" | \"y\"\nb ::= ws a\nws ::= \" \"*"),
      "ebnf: left recursion is not supported: a, b begin with each other; lists are written as item (\",\" item)*");
  EXPECT_EQ(Error("a ::= \"x\""), "ebnf: there is no rule named root");
  EXPECT_EQ(Error("root ::= \"x\"\n  other"), "ebnf: there is no rule named other, called at line 2, column 3");
  EXPECT_EQ(Error("root ::= \"a\"\nroot ::= \"b\""),
            "ebnf: rule root is defined for the second time at line 2, column 1");
  EXPECT_EQ(Error("root ::= \"a\" (=\"b\")"), "ebnf: look-ahead is not supported at line 1, column 14");
  EXPECT_EQ(Error("root ::= TagDispatch((\"a\", b))"), "ebnf: TagDispatch(..) is not supported at line 1, column 10");
  EXPECT_EQ(Error("root[max_tokens=3] ::= \"a\""), "ebnf: attributes of rules are not supported at line 1, column 5");
  EXPECT_EQ(Error("root ::= \"a\"\nb[capture] ::= \"a\""),
            "ebnf: attributes of rules are not supported at line 2, column 2");
  EXPECT_EQ(Error("root ::= \"a\" b ::= \"c\""), "ebnf: a rule must begin on a line of its own at line 1, column 14");
  EXPECT_EQ(Error("root ::= (\"a\"\nb ::= \"c\""),
            "ebnf: a group without its end before the next rule at line 2, column 1");
  EXPECT_EQ(Error("root ::= \"a\" | "), "ebnf: an alternative of nothing must be written as \"\" at line 1, column 16");
  EXPECT_EQ(Error("root ::= \"a"), "ebnf: a literal without its end at line 1, column 10");
  EXPECT_EQ(Error("root ::= \"\\d\""), "ebnf: classes stand in brackets, not in literals at line 1, column 11");
  EXPECT_EQ(Error("root ::= [a-z"), "ebnf: a class without its end at line 1, column 14");
  EXPECT_EQ(Error("root ::= 'a'"),
            "ebnf: a literal, a class, a group or the name of a rule is expected at line 1, column 10");
  EXPECT_EQ(Error("root ::= \"a\"**"), "ebnf: nothing to repeat at line 1, column 13");
  EXPECT_EQ(Error("root ::= \"a\")"), "ebnf: a ) that closes nothing at line 1, column 13");
  EXPECT_EQ(Error("root = \"a\""), "ebnf: ::= is expected behind the name root at line 1, column 6");
  EXPECT_EQ(Error("root ::= \"a\" root"), "ebnf: no answer satisfies it");
}

TEST(EbnfTest, WhatTakesTooMuchIsRefusedInBoundedWork) {
  EXPECT_EQ(Error("root ::= (\"a\"{100}){1000}"), "ebnf: rule root takes more than 16384 states in all");
  EXPECT_NE(Error("root ::= [ab]* \"a\" [ab]{30}"), "");
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 3000; ++i) absl::StrAppend(&chain, "r", i, " ::= \"a\" r", i + 1, "\n");
  EXPECT_NE(Error(chain).find("more than 2048 rules"), std::string::npos) << Error(chain);
  // A cycle of rules that end in each other, each called from its own middle too: each would have a copy of all.
  std::string cycle = "root ::= r1\n";
  for (int i = 1; i < 120; ++i) {
    absl::StrAppend(&cycle, "r", i, " ::= \"(\" r", i, " \")\" r", i % 119 + 1, " | \"", i, "\"\n");
  }
  EXPECT_NE(Error(cycle).find("takes more than 16384 states in all"), std::string::npos) << Error(cycle);
  // Rules that call themselves, all at one place.
  std::string many = "root ::= r0";
  for (int i = 1; i < 300; ++i) absl::StrAppend(&many, " | r", i);
  for (int i = 0; i < 300; ++i) absl::StrAppend(&many, "\nr", i, " ::= \"", i, "\" | \"(\" r", i, " \")\"");
  EXPECT_EQ(Error(many), "ebnf: more than 256 rules may begin at one place");
  EXPECT_NE(Error("root ::= " + std::string(65, '(') + "\"a\"" + std::string(65, ')')).find("nested deeper than 64"),
            std::string::npos);
}

// A random grammar, as text and as a tree that a recogniser walks.
class RandomGrammar {
 public:
  explicit RandomGrammar(uint32_t seed) : random_(seed) {
    const uint32_t num_rules = 1 + Draw(4);
    for (uint32_t i = 0; i < num_rules; ++i) bodies_.push_back(Alternatives(2, num_rules));
  }

  std::string Text() const {
    std::string text;
    for (size_t i = 0; i < bodies_.size(); ++i) absl::StrAppend(&text, Name(i), " ::= ", Print(bodies_[i]), "\n");
    return text;
  }

  // Whether "root" reads the text: the ends that each rule reaches from each place, until none are added.
  bool Reads(const std::string& text) {
    text_ = &text;
    ends_.assign(bodies_.size(), std::vector<std::set<size_t>>(text.size() + 1));
    for (bool has_grown = true; std::exchange(has_grown, false);) {
      for (size_t rule = 0; rule < bodies_.size(); ++rule) {
        for (size_t at = 0; at <= text.size(); ++at) {
          for (const size_t end : Ends(bodies_[rule], at)) has_grown |= ends_[rule][at].insert(end).second;
        }
      }
    }
    return ends_[0][0].contains(text.size());
  }

 private:
  struct Node {
    char kind;  // 'c'lass, 'l'iteral, 's'equence, 'a'lternatives, 'r'epeat, rule 'n'ame
    std::string text;
    std::vector<Node> parts;
    int min = 0, max = 0;
    size_t rule = 0;
  };

  uint32_t Draw(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  static std::string Name(size_t rule) { return rule == 0 ? "root" : absl::StrCat("r", rule); }

  Node Alternatives(int depth, uint32_t num_rules) {
    Node node = {.kind = 'a'};
    for (uint32_t i = 1 + Draw(3); i > 0; --i) {
      Node sequence = {.kind = 's'};
      for (uint32_t j = 1 + Draw(3); j > 0; --j) sequence.parts.push_back(Element(depth, num_rules));
      node.parts.push_back(std::move(sequence));
    }
    return node;
  }

  Node Element(int depth, uint32_t num_rules) {
    static constexpr const char* kLiterals[] = {"", "a", "b", "ab"};
    static constexpr const char* kClasses[] = {"a", "b", "ab"};
    Node node;
    switch (Draw(depth > 0 ? 5 : 4)) {
      case 0:
        node = {.kind = 'c', .text = kClasses[Draw(3)]};
        break;
      case 1:
      case 2:
        node = {.kind = 'l', .text = kLiterals[Draw(4)]};
        break;
      case 3:
        node = {.kind = 'n', .rule = Draw(num_rules)};
        break;
      default:
        node = Alternatives(depth - 1, num_rules);
    }
    static constexpr std::pair<int, int> kCounts[] = {{0, -1}, {1, -1}, {0, 1}, {2, 2}, {1, 3}, {2, -1}};
    if (Draw(3) > 0) return node;
    Node repeat = {.kind = 'r'};
    std::tie(repeat.min, repeat.max) = kCounts[Draw(6)];
    repeat.parts.push_back(std::move(node));
    return repeat;
  }

  static std::string Print(const Node& node) {
    std::string text;
    switch (node.kind) {
      case 'c':
        return absl::StrCat("[", node.text, "]");
      case 'l':
        return absl::StrCat("\"", node.text, "\"");
      case 'n':
        return Name(node.rule);
      case 's':
        for (const Node& part : node.parts) {
          absl::StrAppend(&text, text.empty() ? "" : " ",
                          part.kind == 'a' ? absl::StrCat("(", Print(part), ")") : Print(part));
        }
        return text;
      case 'a':
        for (const Node& part : node.parts) absl::StrAppend(&text, text.empty() ? "" : " | ", Print(part));
        return text;
      default:
        break;
    }
    const Node& part = node.parts[0];
    text = part.kind == 'a' ? absl::StrCat("(", Print(part), ")") : Print(part);
    if (node.max < 0)
      return absl::StrCat(text, node.min == 0 ? "*" : node.min == 1 ? "+" : absl::StrCat("{", node.min, ",}"));
    return node.min == 0 && node.max == 1 ? text + "?" : absl::StrCat(text, "{", node.min, ",", node.max, "}");
  }

  std::set<size_t> Ends(const Node& node, size_t at) const {
    std::set<size_t> ends;
    switch (node.kind) {
      case 'c':
        if (at < text_->size() && node.text.find((*text_)[at]) != std::string::npos) ends.insert(at + 1);
        return ends;
      case 'l':
        if (text_->compare(at, node.text.size(), node.text) == 0) ends.insert(at + node.text.size());
        return ends;
      case 'n':
        return ends_[node.rule][at];
      case 's':
        ends = {at};
        for (const Node& part : node.parts) ends = After(part, ends);
        return ends;
      case 'a':
        for (const Node& part : node.parts) ends.merge(Ends(part, at));
        return ends;
      default:
        break;
    }
    std::set<size_t> reached = {at};
    for (int i = 0; i < node.min; ++i) reached = After(node.parts[0], reached);
    ends = reached;
    for (int i = node.min; node.max < 0 ? !reached.empty() : i < node.max; ++i) {
      std::set<size_t> next;
      for (const size_t end : After(node.parts[0], reached)) {
        if (ends.insert(end).second) next.insert(end);
      }
      reached = std::move(next);
    }
    return ends;
  }

  std::set<size_t> After(const Node& node, const std::set<size_t>& begins) const {
    std::set<size_t> ends;
    for (const size_t begin : begins) ends.merge(Ends(node, begin));
    return ends;
  }

  std::mt19937 random_;
  std::vector<Node> bodies_;
  const std::string* text_ = nullptr;
  std::vector<std::vector<std::set<size_t>>> ends_;  // [rule][place]
};

TEST(EbnfTest, RandomGrammarsReadWhatARecogniserReads) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < 5; ++i) {
    const std::string text = texts[i];
    texts.push_back(text + "a");
    texts.push_back(text + "b");
  }
  int num_read = 0, num_not_read = 0, num_left = 0, num_endless = 0;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    RandomGrammar random(seed);
    const std::string grammar = random.Text();
    const auto constraint = Compile(grammar);
    if (!constraint.ok()) {
      const std::string error = Error(grammar);
      const bool is_left = error.find("left recursion") != std::string::npos;
      const bool is_endless = error.find("no answer") != std::string::npos;
      ASSERT_TRUE(is_left || is_endless) << grammar << error;
      ++(is_left ? num_left : num_endless);
      for (const std::string& text : texts) EXPECT_FALSE(is_endless && random.Reads(text)) << grammar << text;
      continue;
    }
    ConstraintProbe probe(**constraint);
    for (const std::string& text : texts) {
      const bool expected = random.Reads(text);
      ASSERT_EQ(probe.Accepts(text), expected) << grammar << "on \"" << text << "\"";
      ++(expected ? num_read : num_not_read);
    }
  }
  EXPECT_GT(num_read, 2000);
  EXPECT_GT(num_not_read, 4000);
  EXPECT_GT(num_left, 20);
  EXPECT_LT(num_left, 400);
  EXPECT_GT(num_endless, 5);
}

}  // namespace
}  // namespace tandem::router

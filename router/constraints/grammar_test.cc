// Rules put together: random ones that call each other against a recogniser that follows every call by itself, and what
// Finish() takes out, refuses and bounds.
#include "router/constraints/grammar.h"

#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "router/testing/byte_tokenizer.h"
#include "tests/constraints/constraint_probe.h"

namespace tandem::router {
namespace {

using ::tandem::testing::ConstraintProbe;

absl::StatusOr<proto::Constraint> Finish(const Grammar& grammar, uint32_t root) {
  static constexpr uint32_t kEnd[] = {ByteTokenizer::kEos};
  return grammar.Finish(root, kEnd);
}

// Rules of a few states over a and b that call each other, as the grammar takes them and as a table.
class Drawn {
 public:
  static constexpr uint32_t kRules = 3;

  explicit Drawn(uint32_t seed) : random_(seed) {
    for (uint32_t rule = 0; rule < kRules; ++rule) grammar.Reserve();
    for (uint32_t rule = 0; rule < kRules; ++rule) {
      Nfa nfa;
      Rule& drawn = rules_.emplace_back();
      const int num_states = 2 + static_cast<int>(random_() % 3);
      for (int i = 1; i < num_states; ++i) nfa.AddState();
      drawn.edges.resize(num_states);
      for (int i = 0; i < num_states + 3; ++i) {
        const int from = static_cast<int>(random_() % num_states), to = static_cast<int>(random_() % num_states);
        const char letter = "ab"[random_() % 2];
        const uint32_t called = random_() % kRules;
        // What is called must read something first: a rule begins with letters and is not left at once.
        if (random_() % 3 == 0 && from != 0) {
          nfa.AddCall(from, called, to);
          drawn.edges[from].push_back({'\0', called, to});
        } else {
          nfa.AddChars(from, CharClass::Of(letter), to);
          drawn.edges[from].push_back({letter, 0, to});
        }
      }
      drawn.accepting = 1 + static_cast<int>(random_() % (num_states - 1));
      nfa.SetAccepting(drawn.accepting);
      EXPECT_TRUE(grammar.Define(rule, nfa).ok());
    }
  }

  bool Reads(const std::string& text) {
    ends_.assign(kRules, std::vector<std::set<size_t>>(text.size() + 1));
    for (bool has_grown = true; std::exchange(has_grown, false);) {
      for (uint32_t rule = 0; rule < kRules; ++rule) {
        for (size_t at = 0; at <= text.size(); ++at) has_grown |= Walk(rule, text, at);
      }
    }
    return ends_[0][0].contains(text.size());
  }

  Grammar grammar;

 private:
  struct Edge {
    char letter;  // 0: a call
    uint32_t called;
    int to;
  };
  struct Rule {
    std::vector<std::vector<Edge>> edges;
    int accepting = 0;
  };

  bool Walk(uint32_t rule, const std::string& text, size_t begin) {
    bool has_grown = false;
    std::set<std::pair<int, size_t>> seen = {{0, begin}};
    std::vector<std::pair<int, size_t>> open = {{0, begin}};
    while (!open.empty()) {
      const auto [state, at] = open.back();
      open.pop_back();
      if (state == rules_[rule].accepting) has_grown |= ends_[rule][begin].insert(at).second;
      for (const Edge& edge : rules_[rule].edges[state]) {
        std::set<size_t> ends;
        if (edge.letter == '\0') ends = ends_[edge.called][at];
        if (edge.letter != '\0' && at < text.size() && text[at] == edge.letter) ends = {at + 1};
        for (const size_t end : ends) {
          if (seen.insert({edge.to, end}).second) open.emplace_back(edge.to, end);
        }
      }
    }
    return has_grown;
  }

  std::mt19937 random_;
  std::vector<Rule> rules_;
  std::vector<std::vector<std::set<size_t>>> ends_;
};

TEST(GrammarTest, RulesReadWhatARecogniserReads) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < 6; ++i) {
    const std::string text = texts[i];
    texts.push_back(text + "a");
    texts.push_back(text + "b");
  }
  int num_read = 0, num_not_read = 0, num_empty = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Drawn drawn(seed);
    const absl::StatusOr<proto::Constraint> constraint = Finish(drawn.grammar, 0);
    if (!constraint.ok()) {
      ASSERT_EQ(constraint.status().message(), "no answer satisfies it");
      ++num_empty;
      for (const std::string& text : texts) EXPECT_FALSE(drawn.Reads(text)) << seed << " " << text;
      continue;
    }
    ConstraintProbe probe(*constraint);
    for (const std::string& text : texts) {
      const bool expected = drawn.Reads(text);
      ASSERT_EQ(probe.Accepts(text), expected) << seed << " " << text;
      ++(expected ? num_read : num_not_read);
    }
  }
  EXPECT_GT(num_read, 1000);
  EXPECT_GT(num_not_read, 5000);
  EXPECT_GT(num_empty, 10);
}

// Every state that is left leads to an end: no matcher runs into what can never be completed.
TEST(GrammarTest, WhatCannotBeCompletedIsTakenOut) {
  Grammar grammar;
  const uint32_t root = grammar.Reserve(), endless = grammar.Reserve();
  Nfa without_end;
  const int never_done = without_end.AddState();
  without_end.AddCall(without_end.AddText(Nfa::kStart, "x"), endless, never_done);
  ASSERT_TRUE(grammar.Define(endless, without_end).ok());
  Nfa nfa;
  const int end = nfa.AddState();
  nfa.SetAccepting(end);
  nfa.AddEpsilon(nfa.AddText(Nfa::kStart, "a"), end);
  nfa.AddCall(nfa.AddText(Nfa::kStart, "b"), endless, end);
  ASSERT_TRUE(grammar.Define(root, nfa).ok());
  const absl::StatusOr<proto::Constraint> constraint = Finish(grammar, root);
  ASSERT_TRUE(constraint.ok()) << constraint.status();
  EXPECT_EQ(constraint->states_size(), 2);
  ConstraintProbe probe(*constraint);
  EXPECT_TRUE(probe.Accepts("a"));
  EXPECT_FALSE(probe.AcceptsFront("b"));
}

TEST(GrammarTest, ARuleWithoutTheEmptyTextKeepsAllOthers) {
  Grammar grammar;
  const uint32_t root = grammar.Reserve(), many = grammar.Reserve();
  Nfa loop;  // a*, which ends where it begins
  loop.SetAccepting(Nfa::kStart);
  loop.AddChars(Nfa::kStart, CharClass::Of('a'), Nfa::kStart);
  ASSERT_TRUE(grammar.DefineNonEmpty(many, loop).ok());
  Nfa nfa;
  const int end = nfa.AddState();
  nfa.SetAccepting(end);
  const int open = nfa.AddText(Nfa::kStart, "(");
  const int close = nfa.AddState();
  nfa.AddCall(open, many, close);
  nfa.AddEpsilon(nfa.AddText(close, ")"), end);
  ASSERT_TRUE(grammar.Define(root, nfa).ok());
  ConstraintProbe probe(*Finish(grammar, root));
  EXPECT_TRUE(probe.Accepts("(a)") && probe.Accepts("(aaaa)"));
  EXPECT_FALSE(probe.Accepts("()"));
}

TEST(GrammarTest, ACallOfItselfBeforeAnythingIsReadIsRefused) {
  Grammar grammar;
  const uint32_t root = grammar.Reserve(), other = grammar.Reserve();
  for (const auto& [rule, called] : {std::pair{root, other}, std::pair{other, root}}) {
    Nfa nfa;
    const int end = nfa.AddState();
    nfa.SetAccepting(end);
    nfa.AddEpsilon(nfa.AddText(Nfa::kStart, "a"), end);
    const int behind = nfa.AddState();
    nfa.AddCall(Nfa::kStart, called, behind);
    nfa.AddEpsilon(nfa.AddText(behind, "b"), end);
    ASSERT_TRUE(grammar.Define(rule, nfa).ok());
  }
  EXPECT_EQ(Finish(grammar, root).status().message(), "refers to itself with nothing in between");
}

TEST(GrammarTest, StatesAndBytesAreBounded) {
  Grammar grammar;
  const auto define = [&](const std::string& text) {
    Nfa nfa;
    nfa.SetAccepting(nfa.AddText(Nfa::kStart, text));
    return grammar.Define(grammar.Reserve(), nfa);
  };
  ASSERT_TRUE(define(std::string(kConstraintStatesMax - 10, 'a')).ok());
  const absl::Status beyond = define(std::string(20, 'b'));
  EXPECT_EQ(beyond.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(beyond.message(), "takes more than 16384 states in all");
  // Few states, but each reads classes of many ranges.
  Grammar wide;
  Nfa nfa;
  int at = Nfa::kStart;
  for (uint32_t i = 0; i < 200; ++i) {
    std::vector<CharClass::Range> ranges;
    for (uint32_t c = 0; c < 600; ++c) ranges.push_back({0x4E00 + 7 * c + i, 0x4E00 + 7 * c + i + c % 3});
    const int next = nfa.AddState();
    nfa.AddChars(at, CharClass(std::move(ranges)), next);
    at = next;
  }
  nfa.SetAccepting(at);
  const uint32_t root = wide.Reserve();
  ASSERT_TRUE(wide.Define(root, nfa).ok());
  EXPECT_EQ(Finish(wide, root).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem::router

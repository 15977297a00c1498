// Automata against a walk of their own edges: what a random nondeterministic one reads, its deterministic form reads,
// and an intersection reads what both read.
#include "router/constraints/automaton.h"

#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "router/constraints/dfa_reading.h"

namespace tandem::router {
namespace {

constexpr int kStatesMax = 4096;

// The same automaton twice: as the code takes it, and as a table that a test walks.
struct Drawn {
  Nfa nfa;
  std::vector<std::array<std::set<int>, 3>> edges;  // by state: of 'a', of 'b', of nothing
  std::set<int> accepting;

  std::set<int> Closed(std::set<int> states) const {
    for (bool grew = true; std::exchange(grew, false);) {
      for (const int state : std::set<int>(states)) {
        for (const int to : edges[state][2]) grew |= states.insert(to).second;
      }
    }
    return states;
  }
  bool Walk(const std::string& text) const {
    std::set<int> states = Closed({0});
    for (const char c : text) {
      std::set<int> next;
      for (const int state : states) next.insert(edges[state][c - 'a'].begin(), edges[state][c - 'a'].end());
      states = Closed(next);
    }
    for (const int state : states) {
      if (accepting.contains(state)) return true;
    }
    return false;
  }
};

Drawn Draw(uint32_t seed) {
  std::mt19937 random(seed);
  Drawn drawn;
  const int num_states = 2 + static_cast<int>(random() % 5);
  for (int i = 1; i < num_states; ++i) drawn.nfa.AddState();
  drawn.edges.resize(num_states);
  for (int i = 0; i < 2 * num_states; ++i) {
    const int from = static_cast<int>(random() % num_states), to = static_cast<int>(random() % num_states);
    const uint32_t what = random() % 5;  // a letter twice as often as nothing
    if (what == 4) {
      drawn.nfa.AddEpsilon(from, to);
      drawn.edges[from][2].insert(to);
    } else {
      drawn.nfa.AddChars(from, CharClass::Of('a' + what % 2), to);
      drawn.edges[from][what % 2].insert(to);
    }
  }
  const int accepting = static_cast<int>(random() % num_states);
  drawn.nfa.SetAccepting(accepting);
  drawn.accepting.insert(accepting);
  return drawn;
}

std::vector<std::string> AllTexts(size_t length_max) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < length_max; ++i) {
    const std::string text = texts[i];
    texts.push_back(text + "a");
    texts.push_back(text + "b");
  }
  return texts;
}

TEST(AutomatonTest, TheDeterministicFormReadsTheSame) {
  CompileBudget budget;
  int num_read = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    const Drawn drawn = Draw(seed);
    const absl::StatusOr<Dfa> dfa = drawn.nfa.Determinize(kStatesMax, &budget);
    ASSERT_TRUE(dfa.ok()) << dfa.status();
    const Dfa trimmed = Trim(*dfa);
    for (const std::string& text : AllTexts(6)) {
      const bool expected = drawn.Walk(text);
      num_read += expected ? 1 : 0;
      EXPECT_EQ(Reads(*dfa, text), expected) << seed << " " << text;
      EXPECT_EQ(Reads(trimmed, text), expected) << seed << " " << text;
    }
  }
  EXPECT_GT(num_read, 1000);
}

TEST(AutomatonTest, AnIntersectionReadsWhatBothRead) {
  CompileBudget budget;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const Drawn a = Draw(seed), b = Draw(seed + 1000);
    const auto dfa_a = a.nfa.Determinize(kStatesMax, &budget), dfa_b = b.nfa.Determinize(kStatesMax, &budget);
    ASSERT_TRUE(dfa_a.ok() && dfa_b.ok());
    const absl::StatusOr<Dfa> both = Intersect(Trim(*dfa_a), Trim(*dfa_b), kStatesMax, &budget);
    ASSERT_TRUE(both.ok()) << both.status();
    for (const std::string& text : AllTexts(6)) {
      EXPECT_EQ(Reads(*both, text), a.Walk(text) && b.Walk(text)) << seed << " " << text;
    }
  }
}

TEST(AutomatonTest, TextsWithoutAndOtherThan) {
  const Dfa without = TextWithout({"ab", "bb"});
  const Dfa other = TextOtherThan({"ab", "b"}, CharClass::AnyOf("ab"));
  const Dfa between = CharsBetween(CharClass::AnyOf("ab"), 2, 4);
  for (const std::string& text : AllTexts(6)) {
    const bool has = text.find("ab") != std::string::npos || text.find("bb") != std::string::npos;
    EXPECT_EQ(Reads(without, text), !has) << text;
    EXPECT_EQ(Reads(other, text), !text.empty() && text != "ab" && text != "b") << text;
    EXPECT_EQ(Reads(between, text), text.size() >= 2 && text.size() <= 4) << text;
  }
}

TEST(AutomatonTest, WorkAndStatesAreBounded) {
  // The letter that stands 20 before the end: its deterministic form has 2^20 states.
  Nfa nfa;
  nfa.AddChars(Nfa::kStart, CharClass::AnyOf("ab"), Nfa::kStart);
  int state = nfa.AddState();
  nfa.AddChars(Nfa::kStart, CharClass::Of('a'), state);
  for (int i = 0; i < 20; ++i) {
    const int next = nfa.AddState();
    nfa.AddChars(state, CharClass::AnyOf("ab"), next);
    state = next;
  }
  nfa.SetAccepting(state);
  CompileBudget budget;
  EXPECT_EQ(nfa.Determinize(kStatesMax, &budget).status().code(), absl::StatusCode::kResourceExhausted);
  CompileBudget small{.left = 100};
  EXPECT_EQ(nfa.Determinize(1 << 30, &small).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem::router

// Masks against a matcher that keeps every stack by itself and tries every token, on random grammars and small
// vocabularies; and what a mask must do whatever the grammar.
#include "model/token_mask/token_masker.h"

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "model/token_mask/testing/plain_matcher.h"

namespace tandem::model {
namespace {

using ::tandem::model::testing::PlainMatcher;

// Every byte of the alphabet, so that whatever must come can be spelled, and random longer tokens; ids 0 and 1 are
// marks, which are no text.
std::vector<std::string> RandomTokens(std::mt19937& random, const std::vector<std::string>& alphabet) {
  std::vector<std::string> tokens = {"", ""};
  for (const std::string& c : alphabet) {
    for (const char byte : c) tokens.emplace_back(1, byte);
  }
  for (int i = 0; i < 30; ++i) {
    std::string token;
    const int length = 1 + static_cast<int>(random() % 5);
    for (int j = 0; j < length; ++j) token += alphabet[random() % alphabet.size()];
    if (random() % 4 == 0) token.erase(0, 1);  // perhaps from the middle of a character
    if (!token.empty()) tokens.push_back(token);
  }
  return tokens;
}

// Automata that call each other at random. One character a set, so that no state reads one in two ways.
ConstraintSpec RandomSpec(std::mt19937& random, const std::vector<uint32_t>& chars) {
  ConstraintSpec spec;
  for (const uint32_t c : chars) spec.char_sets.push_back({{c, c}});
  const uint32_t num_automata = 1 + random() % 3;
  const uint32_t size = 4;
  for (uint32_t automaton = 0; automaton < num_automata; ++automaton) {
    for (uint32_t i = 0; i < size; ++i) {
      ConstraintState& state = spec.states.emplace_back();
      state.is_accepting = i == size - 1 || (i > 0 && random() % 6 == 0);
      const auto target = [&] { return automaton * size + 1 + static_cast<uint32_t>(random() % (size - 1)); };
      for (uint32_t c = 0; c < chars.size(); ++c) {
        if (random() % 3 == 0) state.chars.push_back({c, target()});
      }
      if (random() % 8 == 0) state.tokens.push_back({1, target()});
      for (uint32_t called = 0; called < num_automata; ++called) {
        // Nothing calls itself, directly or not, before it has read something.
        const bool goes_round = i == 0 && called <= automaton;
        if (random() % 4 == 0 && !goes_round) state.calls.push_back({called * size, target()});
      }
    }
  }
  spec.end_tokens = {0};
  return spec;
}

std::vector<int32_t> AllowedBy(const TokenMask& mask) {
  std::vector<int32_t> allowed;
  for (int32_t token = 0; token < mask.vocab_size(); ++token) {
    if (mask.Allows(token)) allowed.push_back(token);
  }
  return allowed;
}

struct Alphabet {
  std::vector<uint32_t> chars;
  std::vector<std::string> utf8;
};

void CompareOnRandomGrammars(int seed_begin, int seed_end, const Alphabet& alphabet) {
  int num_masks = 0;
  for (int seed = seed_begin; seed < seed_end; ++seed) {
    std::mt19937 random(seed);
    const ConstraintSpec spec = RandomSpec(random, alphabet.chars);
    const std::vector<std::string> tokens = RandomTokens(random, alphabet.utf8);
    const auto vocabulary = std::make_shared<const Vocabulary>(tokens);
    const auto constraint = Constraint::Build(spec, vocabulary);
    if (!constraint.ok()) continue;  // no answer at all
    TokenMasker masker(/*kept_bytes_max=*/random() % 2 == 0 ? 0 : 1 << 20);
    TokenMatcher matcher(*constraint);
    PlainMatcher plain(spec, tokens);
    TokenMask mask(vocabulary->size());
    for (int step = 0; step < 12; ++step) {
      masker.MaskAfter(matcher, &mask);
      std::vector<bool> may_follow;
      for (int32_t token = 0; token < vocabulary->size(); ++token) may_follow.push_back(plain.MayFollow(token));
      if (plain.has_given_up()) break;
      ++num_masks;
      for (int32_t token = 0; token < vocabulary->size(); ++token) {
        ASSERT_EQ(mask.Allows(token), may_follow[token])
            << "seed " << seed << " step " << step << " token " << token << " '" << tokens[token] << "'";
      }
      ASSERT_EQ(matcher.may_end(), plain.may_end()) << "seed " << seed;
      ASSERT_EQ(mask.Allows(0), plain.may_end());
      std::vector<int32_t> allowed = AllowedBy(mask);
      ASSERT_FALSE(allowed.empty()) << "a dead end: seed " << seed;
      ASSERT_EQ(matcher.must_end(), allowed == std::vector<int32_t>{0});
      if (allowed.front() == 0) allowed.erase(allowed.begin());
      if (allowed.empty()) break;
      const int32_t token = allowed[random() % allowed.size()];
      ASSERT_TRUE(matcher.Accept(token).ok());
      plain.Accept(token);
    }
  }
  EXPECT_GT(num_masks, seed_end - seed_begin) << "most grammars gave nothing to compare";
}

TEST(TokenMaskerTest, MasksAreThoseOfTryingEveryToken) {
  CompareOnRandomGrammars(0, 400, {.chars = {'a', 'b', '"'}, .utf8 = {"a", "b", "\""}});
}

TEST(TokenMaskerTest, CharactersOfSeveralBytesMayBeCutBetweenTokens) {
  CompareOnRandomGrammars(
      1000, 1150,
      {.chars = {'a', 0xE9, 0xEA, 0x20AC, 0x1F600, 0x1F601},
       .utf8 = {"a", "\xC3\xA9", "\xC3\xAA", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xF0\x9F\x98\x81"}});
}

// So many sets at each state that they are searched, not looked through.
TEST(TokenMaskerTest, StatesThatReadManySetsGoWhereTheirSetsSay) {
  Alphabet alphabet;
  for (uint32_t i = 0; i < 80; ++i) {
    const uint32_t c = i < 20 ? 'A' + i : 0x4E00 + 3 * i;
    alphabet.chars.push_back(c);
    alphabet.utf8.push_back(c < 128 ? std::string(1, static_cast<char>(c))
                                    : std::string{static_cast<char>(0xE0 | c >> 12),
                                                  static_cast<char>(0x80 | (c >> 6 & 63)),
                                                  static_cast<char>(0x80 | (c & 63))});
  }
  CompareOnRandomGrammars(2000, 2040, alphabet);
}

// A string of 3 to 6 plain characters between quotes, in an automaton of its own.
ConstraintSpec BoundedString() {
  ConstraintSpec spec;
  spec.char_sets = {{{'"', '"'}}, {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0xD7FF}, {0xE000, 0x10FFFF}}};
  spec.states.resize(11);
  spec.states[0].calls = {{2, 1}};  // the outermost: one string
  spec.states[1].is_accepting = true;
  spec.states[2].chars = {{0, 3}};
  for (uint32_t i = 3; i < 9; ++i) spec.states[i].chars = {{1, i + 1}};
  for (uint32_t i = 6; i < 10; ++i) spec.states[i].chars.push_back({0, 10});
  spec.states[10].is_accepting = true;
  spec.end_tokens = {0};
  return spec;
}

TEST(TokenMaskerTest, PlainTokensOfAStringAreAllowedUpToItsLength) {
  const std::vector<std::string> tokens = {
      "",         "\"", "a",        "ab",  "abc", "abcd", "abcdef", "abcdefg", "a\"", "\"a", "\xE2\x82\xAC\xE2\x82\xAC",
      "\xE2\x82", "<",  "<a>bcdef", "\"\""};
  const auto vocabulary = std::make_shared<const Vocabulary>(tokens);
  const ConstraintSpec spec = BoundedString();
  const auto constraint = Constraint::Build(spec, vocabulary);
  ASSERT_TRUE(constraint.ok()) << constraint.status();
  EXPECT_EQ((*constraint)->PlainRun(3), 6);
  EXPECT_EQ((*constraint)->PlainRun(9), 0);
  TokenMasker masker(1 << 20);
  TokenMatcher matcher(*constraint);
  PlainMatcher plain(spec, tokens);
  for (const int32_t token : {1, 3, 10, 2, 8}) {
    TokenMask mask(vocabulary->size());
    masker.MaskAfter(matcher, &mask);
    for (int32_t t = 0; t < vocabulary->size(); ++t) EXPECT_EQ(mask.Allows(t), plain.MayFollow(t)) << tokens[t];
    ASSERT_TRUE(matcher.Accept(token).ok()) << tokens[token];
    plain.Accept(token);
  }
  EXPECT_TRUE(matcher.must_end());
}

TEST(TokenMaskerTest, KeptMasksStayWithinTheirBytesAndServeEqualStates) {
  const std::vector<std::string> tokens = {"", "\"", "a", "ab", "\"a"};
  const auto vocabulary = std::make_shared<const Vocabulary>(tokens);
  const auto constraint = Constraint::Build(BoundedString(), vocabulary);
  ASSERT_TRUE(constraint.ok());
  TokenMasker masker(/*kept_bytes_max=*/3000);
  TokenMask mask(vocabulary->size());
  int64_t num_walks_first = 0;
  for (int round = 0; round < 2; ++round) {
    TokenMatcher matcher(*constraint);
    for (const int32_t token : {1, 2, 2}) {
      masker.MaskAfter(matcher, &mask);
      EXPECT_LE(masker.kept_bytes(), 3000u);
      ASSERT_TRUE(matcher.Accept(token).ok());
    }
    if (round == 0) num_walks_first = masker.num_walks();
  }
  EXPECT_EQ(masker.num_walks(), num_walks_first);
}

TEST(TokenMaskerTest, AVocabularyThatCannotSpellWhatMustComeLeavesNothing) {
  const auto vocabulary = std::make_shared<const Vocabulary>(std::vector<std::string>{"", "x"});
  const auto constraint = Constraint::Build(BoundedString(), vocabulary);
  ASSERT_TRUE(constraint.ok());
  TokenMask mask(vocabulary->size());
  TokenMasker(0).MaskAfter(TokenMatcher(*constraint), &mask);
  EXPECT_EQ(mask.num_allowed(), 0);
}

}  // namespace
}  // namespace tandem::model

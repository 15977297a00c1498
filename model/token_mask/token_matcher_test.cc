#include "model/token_mask/token_matcher.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/token_mask/token_masker.h"

namespace tandem::model {
namespace {

constexpr int32_t kEnd = 0, kMark = 1, kOpen = 2, kClose = 3, kOpenTwice = 4, kA = 5;

// value = a | ( value ), after a mark.
ConstraintSpec Nested() {
  ConstraintSpec spec;
  spec.char_sets = {{{'(', '('}}, {{')', ')'}}, {{'a', 'a'}}};
  spec.states.resize(7);
  spec.states[0].tokens = {{kMark, 1}};
  spec.states[1].calls = {{3, 2}};
  spec.states[2].is_accepting = true;
  spec.states[3].chars = {{0, 4}, {2, 6}};
  spec.states[4].calls = {{3, 5}};
  spec.states[5].chars = {{1, 6}};
  spec.states[6].is_accepting = true;
  spec.end_tokens = {kEnd};
  return spec;
}

class TokenMatcherTest : public ::testing::Test {
 protected:
  std::vector<bool> Allowed(const TokenMatcher& matcher) {
    TokenMask mask(vocabulary_->size());
    masker_.MaskAfter(matcher, &mask);
    std::vector<bool> allowed;
    for (int32_t token = 0; token < vocabulary_->size(); ++token) allowed.push_back(mask.Allows(token));
    return allowed;
  }

  const std::shared_ptr<const Vocabulary> vocabulary_ =
      std::make_shared<const Vocabulary>(std::vector<std::string>{"", "", "(", ")", "((", "a"});
  const std::shared_ptr<const Constraint> constraint_ = *Constraint::Build(Nested(), vocabulary_);
  TokenMasker masker_{1 << 20};
};

TEST_F(TokenMatcherTest, GoesBackToWhatItAllowedBefore) {
  TokenMatcher matcher(constraint_);
  std::vector<std::vector<bool>> allowed = {Allowed(matcher)};
  const std::vector<int32_t> tokens = {kMark, kOpenTwice, kOpen, kA, kClose, kClose, kClose, kEnd};
  for (const int32_t token : tokens) {
    ASSERT_TRUE(matcher.Accept(token).ok());
    allowed.push_back(Allowed(matcher));
  }
  EXPECT_TRUE(matcher.has_ended());
  for (size_t back = 1; back <= tokens.size(); ++back) {
    TokenMatcher again(constraint_);
    for (const int32_t token : tokens) ASSERT_TRUE(again.Accept(token).ok());
    again.Rollback(static_cast<int>(back));
    EXPECT_EQ(Allowed(again), allowed[tokens.size() - back]);
    for (size_t i = tokens.size() - back; i < tokens.size(); ++i) ASSERT_TRUE(again.Accept(tokens[i]).ok());
    EXPECT_TRUE(again.has_ended());
  }
}

TEST_F(TokenMatcherTest, ARefusedTokenChangesNothing) {
  TokenMatcher matcher(constraint_);
  EXPECT_FALSE(matcher.Accept(kA).ok());
  EXPECT_FALSE(matcher.Accept(kEnd).ok());
  EXPECT_FALSE(matcher.Accept(-1).ok());
  EXPECT_FALSE(matcher.Accept(vocabulary_->size()).ok());
  ASSERT_TRUE(matcher.Accept(kMark).ok());
  EXPECT_FALSE(matcher.Accept(kClose).ok());
  EXPECT_EQ(std::string(matcher.Accept(kMark).message()), "token 1 may not stand at place 1 of the constrained answer");
  ASSERT_TRUE(matcher.Accept(kA).ok());
  EXPECT_TRUE(matcher.must_end());
  ASSERT_TRUE(matcher.Accept(kEnd).ok());
  EXPECT_FALSE(matcher.Accept(kEnd).ok());
}

// Whoever opens as many as the depth allows can still close all of them.
TEST_F(TokenMatcherTest, TheDepthOfCallsIsBoundedWithoutADeadEnd) {
  TokenMatcher matcher(constraint_);
  ASSERT_TRUE(matcher.Accept(kMark).ok());
  int depth = 0;
  while (Allowed(matcher)[kOpen]) {
    const bool twice = Allowed(matcher)[kOpenTwice] && depth % 3 == 0;
    ASSERT_TRUE(matcher.Accept(twice ? kOpenTwice : kOpen).ok());
    depth += twice ? 2 : 1;
    ASSERT_LE(depth, Constraint::kCallDepthMax);
  }
  EXPECT_EQ(depth, Constraint::kCallDepthMax - 1);
  EXPECT_FALSE(Allowed(matcher)[kOpenTwice]);
  ASSERT_TRUE(matcher.Accept(kA).ok());
  for (; depth > 0; --depth) ASSERT_TRUE(matcher.Accept(kClose).ok());
  EXPECT_TRUE(matcher.must_end());
}

TEST_F(TokenMatcherTest, BuildRefusesWhatIsNoAutomaton) {
  const auto error = [&](const auto& change) {
    ConstraintSpec spec = Nested();
    change(spec);
    return std::string(Constraint::Build(spec, vocabulary_).status().message());
  };
  EXPECT_EQ(error([](ConstraintSpec&) {}), "");
  EXPECT_EQ(error([](ConstraintSpec& s) { s.states[1].calls[0].to = 7; }),
            "constraint: state 1 names what is not there");
  EXPECT_EQ(error([](ConstraintSpec& s) { s.states[0].tokens[0].what = kA; }),
            "constraint: state 0 names token 5, which is text");
  EXPECT_EQ(error([](ConstraintSpec& s) { s.states[3].is_accepting = true; }),
            "constraint: state 3 is called, accepts");
  EXPECT_EQ(error([](ConstraintSpec& s) {
              s.states[3].chars.push_back({0, 6});
            }),
            "constraint: state 3 reads a character in two ways");
  EXPECT_EQ(error([](ConstraintSpec& s) {
              s.char_sets[0] = {{5, 4}};
            }),
            "constraint: character set 0 is not of ascending ranges of characters");
  EXPECT_EQ(error([](ConstraintSpec& s) {
              s.char_sets[0] = {{0xD700, 0xD800}};
            }),
            "constraint: character set 0 is not of ascending ranges of characters");
  EXPECT_EQ(error([](ConstraintSpec& s) { s.states[2].is_accepting = false; }),
            "constraint: no answer fits it within 100 nested calls");
  EXPECT_EQ(error([](ConstraintSpec& s) { s.first_state = 9; }), "constraint: its first state is none of its states");
  EXPECT_EQ(error([](ConstraintSpec& s) { s.end_tokens = {6}; }),
            "constraint: end token 6 is outside the vocabulary of 6");
  EXPECT_EQ(error([](ConstraintSpec& s) { s.states.resize(Constraint::kStatesMax + 1); }),
            "constraint: has 16385 states, at most 16384");
}

}  // namespace
}  // namespace tandem::model

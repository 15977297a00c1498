// Patterns against the standard library's reading of the same expressions: random ones of the subset over random texts,
// and by hand what is special or refused.
#include "router/constraints/pattern.h"

#include <random>
#include <regex>
#include <string>

#include "gtest/gtest.h"
#include "router/constraints/dfa_reading.h"

namespace tandem::router {
namespace {

constexpr int kStatesMax = 4096;

Dfa Compiled(const std::string& pattern) {
  CompileBudget budget;
  absl::StatusOr<Dfa> dfa = CompilePattern(pattern, PatternReach::kAnywhere, kStatesMax, &budget);
  EXPECT_TRUE(dfa.ok()) << pattern << ": " << dfa.status();
  return dfa.ok() ? *std::move(dfa) : Dfa();
}

class RandomPattern {
 public:
  explicit RandomPattern(uint32_t seed) : random_(seed) {}

  std::string Whole() {
    std::string pattern = Draw(3) == 0 ? "^" : "";
    pattern += Alternatives(3);
    if (Draw(3) == 0) pattern += "$";
    // An anchor belongs to the alternative that it stands in: only one is written.
    return pattern.find('|') == std::string::npos ? pattern : "^(?:" + Alternatives(2) + ")$";
  }
  std::string Text() {
    std::string text;
    for (uint32_t i = Draw(7); i > 0; --i) text += "abc1 _-"[Draw(7)];
    return text;
  }

 private:
  uint32_t Draw(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  std::string Alternatives(int depth) {
    std::string text = Sequence(depth);
    if (depth < 3 && Draw(2) == 0) text += "|" + Sequence(depth);
    return text;
  }
  std::string Sequence(int depth) {
    std::string text;
    for (uint32_t i = 1 + Draw(3); i > 0; --i) text += Atom(depth) + Times();
    return text;
  }
  std::string Atom(int depth) {
    static constexpr const char* kAtoms[] = {"a",   "b",   "c",     ".",      "[ab]", "[^a]",   "\\d",
                                             "\\w", "\\s", "[a-c]", "[^b-c]", "\\-",  "[\\w-]", "1"};
    if (depth > 0 && Draw(4) == 0) return (Draw(2) == 0 ? "(" : "(?:") + Alternatives(depth - 1) + ")";
    return kAtoms[Draw(std::size(kAtoms))];
  }
  std::string Times() {
    static constexpr const char* kTimes[] = {"", "", "", "*", "+", "?", "{2}", "{1,2}", "{2,}", "*?", "+?"};
    return kTimes[Draw(std::size(kTimes))];
  }
  std::mt19937 random_;
};

TEST(PatternTest, RandomPatternsReadWhatTheStandardLibrarySays) {
  int num_read = 0, num_not_read = 0, num_too_large = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    RandomPattern random(seed);
    const std::string pattern = random.Whole();
    CompileBudget budget;
    const absl::StatusOr<Dfa> dfa = CompilePattern(pattern, PatternReach::kAnywhere, kStatesMax, &budget);
    if (absl::IsResourceExhausted(dfa.status())) {
      ++num_too_large;
      continue;
    }
    ASSERT_TRUE(dfa.ok()) << pattern << ": " << dfa.status();
    const std::regex regex(pattern, std::regex::ECMAScript);
    for (int i = 0; i < 40; ++i) {
      const std::string text = random.Text();
      const bool expected = std::regex_search(text, regex);
      EXPECT_EQ(Reads(*dfa, text), expected) << pattern << " over \"" << text << "\"";
      ++(expected ? num_read : num_not_read);
    }
  }
  EXPECT_LE(num_too_large, 4);
  EXPECT_GT(num_read, 2000);
  EXPECT_GT(num_not_read, 2000);
}

TEST(PatternTest, RandomRegexesReadWholeTextsAsTheStandardLibrarySays) {
  int num_read = 0, num_not_read = 0, num_too_large = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    RandomPattern random(seed);
    const std::string pattern = random.Whole();
    CompileBudget budget;
    const absl::StatusOr<Dfa> dfa = CompilePattern(pattern, PatternReach::kWhole, kStatesMax, &budget);
    if (absl::IsResourceExhausted(dfa.status())) {
      ++num_too_large;
      continue;
    }
    ASSERT_TRUE(dfa.ok()) << pattern << ": " << dfa.status();
    const std::regex regex(pattern, std::regex::ECMAScript);
    for (int i = 0; i < 40; ++i) {
      const std::string text = random.Text();
      const bool expected = std::regex_match(text, regex);
      EXPECT_EQ(Reads(*dfa, text), expected) << pattern << " over \"" << text << "\"";
      ++(expected ? num_read : num_not_read);
    }
  }
  EXPECT_LE(num_too_large, 4);
  EXPECT_GT(num_read, 400);
  EXPECT_GT(num_not_read, 4000);
}

TEST(PatternTest, GroupsOfEveryKindThatOnlyGroup) {
  for (const char* pattern : {"(ab)+", "(?:ab)+", "(?<n>ab)+", "(?P<name>ab)+", "^(ab)+$", "(ab)+?"}) {
    CompileBudget budget;
    const absl::StatusOr<Dfa> dfa = CompilePattern(pattern, PatternReach::kWhole, kStatesMax, &budget);
    ASSERT_TRUE(dfa.ok()) << pattern << ": " << dfa.status();
    EXPECT_TRUE(Reads(*dfa, "abab")) << pattern;
    EXPECT_FALSE(Reads(*dfa, "aba") || Reads(*dfa, "") || Reads(*dfa, "xab")) << pattern;
  }
}

TEST(PatternTest, ErrorsSayWhatAndWhere) {
  const auto error = [](const char* pattern) {
    CompileBudget budget;
    return std::string(CompilePattern(pattern, PatternReach::kWhole, kStatesMax, &budget).status().message());
  };
  EXPECT_EQ(error("ab(?=c)"), "look-ahead is not supported at character 2");
  EXPECT_EQ(error("(?<!a)b"), "look-behind is not supported at character 0");
  EXPECT_EQ(error("(?i)a"), "flags and other kinds of groups are not supported at character 0");
  EXPECT_EQ(error("(?P<n>a)(?P=n)"), "references are not supported at character 8");
  EXPECT_EQ(error("(a)\\1"), "\\1 is not supported at character 3");
  EXPECT_EQ(error("a\\b"), "\\b is not supported at character 1");
  EXPECT_EQ(error("\\p{L}"), "\\p is not supported at character 0");
  EXPECT_EQ(error("a++"), "possessive repeats are not supported at character 2");
  EXPECT_EQ(error("a**"), "nothing to repeat at character 2");
  EXPECT_EQ(error("a^b"), "^ and $ are supported at the ends of the pattern or of its alternatives at character 1");
  EXPECT_EQ(error("a)"), "a ) that closes nothing must be escaped at character 1");
  EXPECT_EQ(error("x{,3}"), "a { that begins no count must be escaped or quoted at character 1");
  EXPECT_EQ(error("(a"), "a group without its end at character 0");
}

TEST(PatternTest, MatchesAnywhereUnlessAnchored) {
  EXPECT_TRUE(Reads(Compiled("b"), "abc"));
  EXPECT_FALSE(Reads(Compiled("^b"), "abc"));
  EXPECT_FALSE(Reads(Compiled("b$"), "abc"));
  EXPECT_TRUE(Reads(Compiled("^b$"), "b"));
  EXPECT_TRUE(Reads(Compiled(""), "anything"));
}

TEST(PatternTest, CharactersBeyondAsciiAreWholeCharacters) {
  EXPECT_TRUE(Reads(Compiled("^.{2}$"), "日本"));
  EXPECT_TRUE(Reads(Compiled("^[ä-ü]+$"), "äöü"));
  EXPECT_FALSE(Reads(Compiled("^[ä-ü]+$"), "a"));
  EXPECT_FALSE(Reads(Compiled("^\\D$"), "日")) << "dialects differ there: nobody's text has it";
}

TEST(PatternTest, WhatIsBeyondTheSubsetIsRefused) {
  for (const char* pattern :
       {"(?=a)", "(?!a)", "(?<=a)b", "(a)\\1", "\\bword", "\\p{L}", "(", ")", "[a", "a{2,1}", "*"}) {
    CompileBudget budget;
    EXPECT_EQ(CompilePattern(pattern, PatternReach::kAnywhere, kStatesMax, &budget).status().code(),
              absl::StatusCode::kInvalidArgument)
        << pattern;
  }
}

TEST(PatternTest, WhatTakesTooMuchIsRefusedInBoundedWork) {
  for (const char* pattern : {"^(?:[ab]*a[ab]{30})$", "^(?:a{1000}){1000}$"}) {
    CompileBudget budget;
    EXPECT_EQ(CompilePattern(pattern, PatternReach::kAnywhere, kStatesMax, &budget).status().code(),
              absl::StatusCode::kResourceExhausted)
        << pattern;
  }
}

}  // namespace
}  // namespace tandem::router

// How values are written: what the rules read is JSON to a parser that is not theirs, bounds of numbers against
// arithmetic, number by number, and strings whose characters are told by an automaton.
#include "router/constraints/json_grammar.h"

#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/testing/byte_tokenizer.h"
#include "tests/constraints/constraint_probe.h"

namespace tandem::router {
namespace {

using ::tandem::testing::ConstraintProbe;

// The texts that `add` writes between two states.
std::unique_ptr<ConstraintProbe> Probe(const std::function<void(const JsonGrammar&, Nfa*, int, int)>& add,
                                       const CharClass& never_bare = CharClass()) {
  Grammar grammar;
  JsonGrammar json(&grammar, never_bare);
  EXPECT_TRUE(json.Init().ok());
  Nfa nfa;
  const int end = nfa.AddState();
  nfa.SetAccepting(end);
  add(json, &nfa, Nfa::kStart, end);
  const uint32_t root = grammar.Reserve();
  EXPECT_TRUE(grammar.Define(root, nfa).ok());
  static constexpr uint32_t kEnd[] = {ByteTokenizer::kEos};
  const absl::StatusOr<proto::Constraint> constraint = grammar.Finish(root, kEnd);
  EXPECT_TRUE(constraint.ok()) << constraint.status();
  return std::make_unique<ConstraintProbe>(*constraint);
}

TEST(JsonGrammarTest, IntegersBetweenBoundsAreThoseNumbers) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 120; ++i) {
    const auto draw = [&] { return static_cast<int64_t>(random() % 2400) - 1200; };
    const int64_t a = draw(), b = i % 3 == 0 ? a + static_cast<int64_t>(random() % 4) : draw();
    const int64_t min = std::min(a, b), max = std::max(a, b);
    const auto probe = Probe(
        [&](const JsonGrammar& json, Nfa* nfa, int from, int to) { json.AddIntegerBetween(nfa, from, min, max, to); });
    for (int64_t n = -1300; n <= 1300; ++n) {
      ASSERT_EQ(probe->Accepts(absl::StrCat(n)), n >= min && n <= max) << n << " in " << min << " to " << max;
    }
    for (const char* text : {"", "-", "-0", "00", "01", "1.0", "+1", "1e1"}) EXPECT_FALSE(probe->Accepts(text)) << text;
  }
}

TEST(JsonGrammarTest, NumbersBetweenBoundsStayBetweenThem) {
  std::mt19937_64 random(2);
  int num_inside = 0;
  for (int i = 0; i < 60; ++i) {
    const int64_t a = static_cast<int64_t>(random() % 300) - 150, b = static_cast<int64_t>(random() % 300) - 150;
    const int64_t min = std::min(a, b), max = std::max(a, b);
    const auto probe = Probe(
        [&](const JsonGrammar& json, Nfa* nfa, int from, int to) { json.AddNumberBetween(nfa, from, min, max, to); });
    for (int j = 0; j < 400; ++j) {
      const int64_t hundredths = static_cast<int64_t>(random() % 40000) - 20000;
      const int64_t rest = std::abs(hundredths) % 100;
      const std::string text =
          absl::StrCat(hundredths < 0 ? "-" : "", std::abs(hundredths) / 100, ".", rest / 10, rest % 10);
      const double value = std::strtod(text.c_str(), nullptr);
      const bool is_inside = value >= static_cast<double>(min) && value <= static_cast<double>(max);
      num_inside += is_inside ? 1 : 0;
      if (probe->Accepts(text)) {
        EXPECT_TRUE(is_inside) << text << " in " << min << " to " << max;
      } else {
        // Left out are only the bounds themselves with a fraction of zeroes, and minus zero.
        EXPECT_TRUE(!is_inside || rest == 0 || (hundredths < 0 && min == 0)) << text << " in " << min << " to " << max;
      }
    }
  }
  EXPECT_GT(num_inside, 2000);
}

TEST(JsonGrammarTest, AnyValueIsJsonToAnotherParserAndNothingElseIs) {
  const auto probe = Probe(
      [](const JsonGrammar& json, Nfa* nfa, int from, int to) { json.AddAny(nfa, from, to, /*with_strings=*/true); });
  int num_written = 0;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const auto written = probe->Write(seed, 30, 3000);
    if (!written.has_value()) continue;
    ++num_written;
    boost::json::parse_options deep;
    deep.max_depth = 200;
    boost::json::error_code error;
    boost::json::parse(written->text, error, {}, deep);
    EXPECT_FALSE(error) << written->text;
  }
  EXPECT_GT(num_written, 150);
  for (const char* text :
       {"",   "nul", "[1,]", "[,1]", "{\"a\"}", "{\"a\":1,}", "{a:1}",      "'a'",         "\"\t\"", "\"\\x\"",
        "01", "1.",  ".5",   "-",    "1e",      "[1 2]",      "true false", "\"\\ud800\"", "NaN",    "Infinity"}) {
    EXPECT_FALSE(probe->Accepts(text)) << text;
  }
  for (const char* text : {"[ 1, 2 ]", "{ \"a\" : 1 }", "{\n\t\"a\": [\n1\n]\n}", "-0.5e-7", "\"\\ud83d\\ude00\""}) {
    EXPECT_EQ(probe->Accepts(text), std::string(text) != "{ \"a\" : 1 }") << text << ": no space before a colon";
  }
  const std::string space(JsonGrammar::kWhiteSpaceMax, ' ');
  EXPECT_TRUE(probe->Accepts("[" + space + "1]"));
  EXPECT_FALSE(probe->Accepts("[" + space + " 1]"));
}

TEST(JsonGrammarTest, StringsWriteTheCharactersOfTheirContent) {
  const auto probe = Probe([](const JsonGrammar& json, Nfa* nfa, int from, int to) {
    json.AddString(nfa, from, CharsBetween(CharClass({{'\n', '\n'}, {'"', '"'}, {'a', 'b'}, {0x1F600, 0x1F600}}), 1, 2),
                   to);
  });
  for (const char* text : {R"("a")", R"("ab")", R"("\n\"")", "\"😀a\""}) EXPECT_TRUE(probe->Accepts(text)) << text;
  for (const char* text : {R"("")", R"("aab")", R"("c")", "\"\n\"", R"("\u0061")", R"("\t")", "\"a", "a"}) {
    EXPECT_FALSE(probe->Accepts(text)) << text;
  }
  EXPECT_FALSE(Probe([](const JsonGrammar& json, Nfa* nfa, int from, int to) {
                 json.AddString(nfa, from, Dfa(), to);
                 nfa->AddEpsilon(nfa->AddText(from, "x"), to);
               })->AcceptsFront("\""));
}

TEST(JsonGrammarTest, WhatMayNotStandBareIsEscaped) {
  const CharClass bar = CharClass::Of(0xFF5C);
  const auto any =
      Probe([](const JsonGrammar& json, Nfa* nfa, int from, int to) { json.AddString(nfa, from, to); }, bar);
  EXPECT_TRUE(any->Accepts("\"a\\uff5cb\""));
  EXPECT_FALSE(any->AcceptsFront("\"a｜"));
  const auto literal =
      Probe([](const JsonGrammar& json, Nfa* nfa, int from,
               int to) { json.AddLiteral(nfa, from, testing::Json("{\"k｜\": [1, \"｜\", null]}"), to); },
            bar);
  EXPECT_TRUE(literal->Accepts("{\"k\\uff5c\": [1, \"\\uff5c\", null]}"));
  EXPECT_FALSE(literal->AcceptsFront("{\"k｜"));
}

TEST(JsonGrammarTest, OtherKeysAreNoneOfTheKnown) {
  const auto probe = Probe([](const JsonGrammar& json, Nfa* nfa, int from, int to) {
    json.AddOtherKey(nfa, from, {"a", "abc", "é"}, to);
  });
  for (const char* text : {R"("b")", R"("ab")", R"("abcd")", R"("ée")", R"("aé")"})
    EXPECT_TRUE(probe->Accepts(text)) << text;
  for (const char* text : {R"("a")", R"("abc")", R"("é")", R"("")", R"("\u0062")"}) {
    EXPECT_FALSE(probe->Accepts(text)) << text;
  }
}

}  // namespace
}  // namespace tandem::router

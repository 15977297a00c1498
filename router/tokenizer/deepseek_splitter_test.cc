// Compares the splitter with the three patterns run by PCRE2: all texts of up to four characters out of one or two of
// each kind, long random ones, and every code point in company.
#include "router/tokenizer/deepseek_splitter.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "router/tokenizer/split_pattern.h"
#include "router/tokenizer/utf8.h"

namespace tandem::router {
namespace {

using Pieces = std::vector<absl::string_view>;

class DeepseekSplitterTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const absl::string_view pattern : kDeepseekPatterns) {
      absl::StatusOr<SplitPattern> compiled = SplitPattern::FromRegex(pattern);
      ASSERT_TRUE(compiled.ok()) << compiled.status();
      patterns_.push_back(*std::move(compiled));
    }
  }

  Pieces SplitByPatterns(absl::string_view text) {
    Pieces pieces = {text};
    for (const SplitPattern& pattern : patterns_) {
      Pieces cut;
      EXPECT_TRUE(pattern.Split(pieces, &cut).ok());
      pieces = std::move(cut);
    }
    return pieces;
  }

  void ExpectEqual(absl::string_view text) {
    Pieces pieces;
    SplitAsDeepseek(text, &pieces);
    ASSERT_EQ(pieces, SplitByPatterns(text)) << testing::PrintToString(std::string(text));
  }

  std::vector<SplitPattern> patterns_;
};

// Letters, marks, numbers, punctuation, symbols, white space and others, in ASCII, beyond it, and in the Chinese and
// Japanese ranges.
const char* const kKinds[] = {"a",      "é",      "\u0301", "7",      "½",  ".",      "$",   "，",
                              "🙂",   " ",      "\t",     "\n",     "\r", "\u00A0", "世",  "・",
                              "\u3099", "\u3040", "\u309B", "\u200B", "龦", "\u3000", "\x01"};

TEST_F(DeepseekSplitterTest, AllShortTextsOfEveryKindSplitAsThePatternsSay) {
  std::vector<std::string> texts = {""};
  for (int length = 1; length <= 4; ++length) {
    std::vector<std::string> longer;
    longer.reserve(texts.size() * std::size(kKinds));
    for (const std::string& text : texts) {
      for (const char* kind : kKinds) longer.push_back(text + kind);
    }
    texts = std::move(longer);
    for (const std::string& text : texts) ASSERT_NO_FATAL_FAILURE(ExpectEqual(text));
  }
}

TEST_F(DeepseekSplitterTest, LongRandomTextsSplitAsThePatternsSay) {
  std::mt19937 generator(23);
  for (int round = 0; round < 20000; ++round) {
    // Few kinds at a time, so that runs grow long.
    const char* kinds[4];
    for (const char*& kind : kinds) kind = kKinds[generator() % std::size(kKinds)];
    std::string text;
    for (uint32_t i = generator() % 40; i > 0; --i) text += kinds[generator() % std::size(kinds)];
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(text));
  }
}

TEST_F(DeepseekSplitterTest, EveryCodePointThatPcre2KnowsSplitsAsThePatternsSay) {
  absl::StatusOr<SplitPattern> unassigned = SplitPattern::FromRegex("\\p{Cn}");
  ASSERT_TRUE(unassigned.ok());
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string character;
    AppendUtf8(c, &character);
    Pieces pieces;
    ASSERT_TRUE(unassigned->Split({character + character}, &pieces).ok());
    if (pieces.size() == 2) continue;
    const std::string& x = character;
    ASSERT_NO_FATAL_FAILURE(ExpectEqual(x + "a " + x + x + "  " + x + "." + x + "\n1" + x + "世" + x));
  }
}

TEST_F(DeepseekSplitterTest, AMegabyteOfOneKindIsSplitInOnePass) {
  for (const char* kind : kKinds) {
    std::string text;
    while (text.size() < (1 << 20)) text += kind;
    ExpectEqual(text);
    ExpectEqual("a" + text + "a");
  }
}

}  // namespace
}  // namespace tandem::router

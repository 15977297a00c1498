#include "router/tokenizer/split_pattern.h"

#include <gtest/gtest.h>

#include <string>

#include "router/tokenizer/utf8.h"

namespace tandem::router {
namespace {

using Pieces = std::vector<absl::string_view>;

Pieces Split(absl::StatusOr<SplitPattern> pattern, const Pieces& pieces) {
  EXPECT_TRUE(pattern.ok()) << pattern.status();
  if (!pattern.ok()) return {};
  Pieces cut;
  const absl::Status status = pattern->Split(pieces, &cut);
  EXPECT_TRUE(status.ok()) << status;
  return cut;
}

TEST(SplitPatternTest, MatchesAndGapsAreBothPieces) {
  EXPECT_EQ(Split(SplitPattern::FromRegex("[0-9]{1,3}"), {"ab1234c", "5", "", "d"}),
            (Pieces{"ab", "123", "4", "c", "5", "d"}));
  EXPECT_EQ(Split(SplitPattern::FromRegex("[0-9]"), {"12"}), (Pieces{"1", "2"}));
}

TEST(SplitPatternTest, LookAheadSeesTheEndOfThePieceAndNotTheTextBehindIt) {
  const std::string text = "a  b";
  const absl::string_view view = text;
  EXPECT_EQ(Split(SplitPattern::FromRegex("\\s+(?!\\S)"), {view}), (Pieces{"a", " ", " b"}));
  EXPECT_EQ(Split(SplitPattern::FromRegex("\\s+(?!\\S)"), {view.substr(0, 3), view.substr(3)}),
            (Pieces{"a", "  ", "b"}));
}

TEST(SplitPatternTest, AnEmptyMatchCutsAndTakesNothing) {
  EXPECT_EQ(Split(SplitPattern::FromRegex("(?=[A-Z])"), {"oneTwoThree"}), (Pieces{"one", "Two", "Three"}));
  EXPECT_EQ(Split(SplitPattern::FromRegex("(?=é)"), {"éé"}), (Pieces{"é", "é"}));
  EXPECT_EQ(Split(SplitPattern::FromRegex("x*"), {"axxb"}), (Pieces{"a", "xx", "b"}));
}

TEST(SplitPatternTest, WhiteSpaceIsUnicodesWhiteSpace) {
  // PropList.txt, White_Space.
  const std::vector<std::pair<uint32_t, uint32_t>> kRanges = {
      {0x9, 0xD},       {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
      {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
  for (const char* regex : {"\\s", "[\\s]"}) {
    absl::StatusOr<SplitPattern> pattern = SplitPattern::FromRegex(regex);
    ASSERT_TRUE(pattern.ok()) << pattern.status();
    for (uint32_t c = 0; c < 0x110000; ++c) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      std::string character;
      AppendUtf8(c, &character);
      const std::string text = character + character;
      Pieces cut;
      ASSERT_TRUE(pattern->Split({text}, &cut).ok());
      const bool is_space = std::any_of(kRanges.begin(), kRanges.end(),
                                        [c](const auto& range) { return c >= range.first && c <= range.second; });
      ASSERT_EQ(cut.size(), is_space ? 2u : 1u) << "U+" << std::hex << c;
    }
  }
}

TEST(SplitPatternTest, ClassesAreThoseOfUnicode) {
  EXPECT_EQ(Split(SplitPattern::FromRegex("\\p{N}"), {"a½٣1b"}), (Pieces{"a", "½", "٣", "1", "b"}));
  EXPECT_EQ(Split(SplitPattern::FromRegex("[\\p{L}\\p{M}]+"), {"-naïve नमस्ते"}), (Pieces{"-", "naïve", " ", "नमस्ते"}));
}

TEST(SplitPatternTest, ALiteralMeansItself) {
  EXPECT_EQ(Split(SplitPattern::FromLiteral("a.[b]$"), {"xa.[b]$axbya"}), (Pieces{"x", "a.[b]$", "axbya"}));
  EXPECT_EQ(SplitPattern::FromLiteral("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SplitPatternTest, DeepBacktrackingLeavesTheSmallStackAndStillMatches) {
  const std::string text(300000, 'a');
  EXPECT_EQ(Split(SplitPattern::FromRegex("(?:a|b)+"), {text}), (Pieces{text}));
}

TEST(SplitPatternTest, RefusesWhatOnigurumaAndPcre2ReadDifferently) {
  for (const char* regex :
       {"\\h+", "^a", "a$", "[a[bc]]", "[a&&b]", "[]a]", "\\w+", "[^\\S]", "\\R", "a\\b", "(", "[a"}) {
    const absl::Status status = SplitPattern::FromRegex(regex).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << regex;
    EXPECT_NE(status.message().find("pattern \""), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace tandem::router

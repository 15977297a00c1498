// The pieces of DeepSeek's patterns, as the specification explains them.
#include "router/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>

#include "router/tokenizer/deepseek_splitter.h"

namespace tandem::router {
namespace {

using Pieces = std::vector<std::string>;

Pieces Split(const std::vector<SplitStep>& steps, absl::string_view text) {
  absl::StatusOr<PreTokenizer> pre_tokenizer = PreTokenizer::Build(steps);
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  std::vector<absl::string_view> pieces = {"left over"};
  const absl::Status status = pre_tokenizer->Split(text, &pieces);
  EXPECT_TRUE(status.ok()) << status;
  Pieces copies;
  for (const absl::string_view piece : pieces) copies.emplace_back(piece);
  return copies;
}

Pieces SplitAsDeepseek(absl::string_view text) {
  return Split(
      {{std::string(kDeepseekPatterns[0])}, {std::string(kDeepseekPatterns[1])}, {std::string(kDeepseekPatterns[2])}},
      text);
}

TEST(PreTokenizerTest, TextWithoutStepsIsOnePiece) {
  EXPECT_EQ(Split({}, "a b"), (Pieces{"a b"}));
  EXPECT_EQ(Split({}, ""), Pieces{});
  EXPECT_EQ(SplitAsDeepseek(""), Pieces{});
}

TEST(PreTokenizerTest, EachStepWorksOnThePiecesOfTheStepBefore) {
  EXPECT_EQ(Split({{"b", false}, {"a+(?!b)"}}, "aab"), (Pieces{"aa", "b"}));
  EXPECT_EQ(Split({{"a+(?!b)"}, {"b", false}}, "aab"), (Pieces{"a", "a", "b"}));
}

TEST(PreTokenizerTest, SplitsAsTheSpecificationExplains) {
  EXPECT_EQ(SplitAsDeepseek("  leading spaces"), (Pieces{" ", " leading", " spaces"}));
  EXPECT_EQ(SplitAsDeepseek("  123"), (Pieces{"  ", "123"}));
  EXPECT_EQ(SplitAsDeepseek("1234567"), (Pieces{"123", "456", "7"}));
  EXPECT_EQ(SplitAsDeepseek("a\n\n\nb  \n c"), (Pieces{"a", "\n\n\n", "b", "  \n", " c"}));
  EXPECT_EQ(SplitAsDeepseek("don't"), (Pieces{"don", "'t"}));
  EXPECT_EQ(SplitAsDeepseek("a_b__c"), (Pieces{"a", "_b", "__", "c"}));
  EXPECT_EQ(SplitAsDeepseek("https://a.b/c?d=e"), (Pieces{"https", "://", "a", ".b", "/c", "?d", "=e"}));
  EXPECT_EQ(SplitAsDeepseek("\tif (x == 10) {\r\n"), (Pieces{"\tif", " (", "x", " ==", " ", "10", ")", " {\r\n"}));
  EXPECT_EQ(SplitAsDeepseek("你好，世界2024年"), (Pieces{"你好", "，", "世界", "202", "4", "年"}));
  EXPECT_EQ(SplitAsDeepseek("カタカナ and ひらがな"), (Pieces{"カタカナ", " and", " ", "ひらがな"}));
  EXPECT_EQ(SplitAsDeepseek("½¾"), (Pieces{"½¾"}));
  EXPECT_EQ(SplitAsDeepseek("🙂👍🏽"), (Pieces{"🙂👍🏽"}));
  EXPECT_EQ(SplitAsDeepseek("word\u200Bword"), (Pieces{"word", "\u200Bword"}));
  EXPECT_EQ(SplitAsDeepseek("\u00A0x"), (Pieces{"\u00A0x"}));
  EXPECT_EQ(SplitAsDeepseek("`code`\n"), (Pieces{"`code", "`\n"}));
}

TEST(PreTokenizerTest, NamesThePatternThatIsWrong) {
  const absl::Status status = PreTokenizer::Build({{"a"}, {"(b"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("(b"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace tandem::router

// The tokenizer reads the vocabularies that tools/make_checkpoint writes.
#include <gtest/gtest.h>

#include <algorithm>

#include "router/tokenizer/tokenizer.h"
#include "tools/make_checkpoint/tokenizer_json.h"

namespace tandem::router {
namespace {

using Ids = std::vector<TokenId>;

TEST(WrittenVocabularyTest, AWrittenVocabularyEncodesChats) {
  constexpr int kVocabSize = 1024;
  const absl::StatusOr<std::unique_ptr<const Tokenizer>> parsed =
      Tokenizer::Parse(make_checkpoint::BuildTokenizerJson(kVocabSize));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const Tokenizer& tokenizer = **parsed;
  EXPECT_EQ(tokenizer.num_ids(), TokenId{kVocabSize});
  for (TokenId id = 0; id < tokenizer.num_ids(); ++id) EXPECT_NE(tokenizer.TokenBytes(id), "") << id;

  EXPECT_EQ(tokenizer.FindAddedToken("<｜begin▁of▁sentence｜>"), TokenId{0});
  EXPECT_EQ(tokenizer.FindAddedToken("<｜end▁of▁sentence｜>"), TokenId{1});
  const std::optional<TokenId> dsml = tokenizer.FindAddedToken("｜DSML｜");
  const std::optional<TokenId> think = tokenizer.FindAddedToken("<think>");
  ASSERT_TRUE(dsml.has_value() && think.has_value());

  const std::string text = "<think>\n\n<｜DSML｜function_calls> The router 123 世界 🙂";
  const absl::StatusOr<Ids> markup = tokenizer.Encode(text, Tokenizer::AddedTokens::kMatch);
  const absl::StatusOr<Ids> content = tokenizer.Encode(text, Tokenizer::AddedTokens::kIgnore);
  ASSERT_TRUE(markup.ok() && content.ok());
  EXPECT_EQ(markup->front(), *think);
  EXPECT_EQ(std::count(markup->begin(), markup->end(), *dsml), 1);
  EXPECT_EQ(std::count(content->begin(), content->end(), *dsml), 0);
  EXPECT_EQ(tokenizer.Decode(*markup), text);
  EXPECT_EQ(tokenizer.Decode(*content), text);
  EXPECT_LT(markup->size(), text.size() / 2) << "its merges are used";
}

}  // namespace
}  // namespace tandem::router

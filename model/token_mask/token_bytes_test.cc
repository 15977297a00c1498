#include "model/token_mask/token_bytes.h"

#include "gtest/gtest.h"

namespace tandem::model {
namespace {

TEST(TokenBytesTest, ReadsTheByteAlphabetAndLeavesAddedTokensOut) {
  const auto bytes = ParseTokenBytes(R"({
    "model": {"vocab": {"a": 1, "Ġb": 2, "Ċ": 3, "ä½ł": 4, "<x>": 5, "Ń": 6}},
    "added_tokens": [{"id": 5, "content": "<x>"}, {"id": 7, "content": "<y>"}]})",
                                     9);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, (std::vector<std::string>{"", "a", " b", "\n", "\xE4\xBD\xA0", "", "\xAD", "", ""}));
}

TEST(TokenBytesTest, RefusesByName) {
  const auto error = [](const char* json) { return std::string(ParseTokenBytes(json, 4).status().message()); };
  EXPECT_EQ(error("{}"), "tokenizer.json: model.vocab is missing");
  EXPECT_EQ(error(R"({"model": {"vocab": {"a": 4}}})"),
            "tokenizer.json: model.vocab: id is 4, must be an id of the vocabulary of 4");
  EXPECT_EQ(error(R"({"model": {"vocab": {"a b": 1}}})"),
            "tokenizer.json: model.vocab: token 1 is not written in the byte alphabet");
  EXPECT_EQ(error(R"({"model": {"vocab": {}}, "added_tokens": [{}]})"),
            "tokenizer.json: added_tokens: a token without an id");
  EXPECT_FALSE(ParseTokenBytes("{", 4).ok());
  EXPECT_TRUE(absl::IsNotFound(LoadTokenBytes("/nonexistent", 4).status()));
}

}  // namespace
}  // namespace tandem::model

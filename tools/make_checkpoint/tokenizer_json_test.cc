// Proves the file's structure: every id once, the byte symbols at DeepSeek's ids, merges whose parts and results are in
// the vocabulary, the markers at the end. That a tokenizer reads it is tested with the router's.
#include "tools/make_checkpoint/tokenizer_json.h"

#include <map>
#include <set>

#include "absl/strings/string_view.h"
#include "boost/json/value.hpp"
#include "gtest/gtest.h"
#include "model/json.h"

namespace tandem::make_checkpoint {
namespace {

class TokenizerJsonTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    auto parsed = model::ParseJson(BuildTokenizerJson(GetParam()), "tokenizer.json");
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    root_ = *parsed;
    for (const auto& [token, id] : root_.at("model").at("vocab").as_object()) Insert(std::string(token), id.as_int64());
    for (const auto& token : root_.at("added_tokens").as_array()) {
      Insert(std::string(token.at("content").as_string()), token.at("id").as_int64());
    }
  }
  void Insert(const std::string& content, int64_t id) {
    auto [it, is_new] = id_of_.emplace(content, id);
    EXPECT_TRUE(is_new || it->second == id) << content << " has two ids";
    content_of_[id].insert(content);
  }
  boost::json::value root_;
  std::map<std::string, int64_t> id_of_;
  std::map<int64_t, std::set<std::string>> content_of_;
};

TEST_P(TokenizerJsonTest, GivesEveryIdOneContent) {
  ASSERT_EQ(static_cast<int>(content_of_.size()), GetParam());
  EXPECT_EQ(content_of_.begin()->first, 0);
  EXPECT_EQ(content_of_.rbegin()->first, GetParam() - 1);
  for (const auto& [id, contents] : content_of_) EXPECT_EQ(contents.size(), 1u) << id;
}

TEST_P(TokenizerJsonTest, PutsSpecialTokensAndBytesWhereDeepseekHasThem) {
  EXPECT_EQ(id_of_.at("<｜begin▁of▁sentence｜>"), 0);
  EXPECT_EQ(id_of_.at("<｜end▁of▁sentence｜>"), 1);
  EXPECT_EQ(id_of_.at("<｜▁pad▁｜>"), 2);
  EXPECT_EQ(id_of_.at("!"), 3);    // "Hello!" ends in 3 with the real tokenizer
  EXPECT_EQ(id_of_.at("."), 16);   // and "assistant." in 16
  EXPECT_EQ(id_of_.at("Ċ"), 201);  // a line feed is 201 there, a carriage return 204
  EXPECT_EQ(id_of_.at("č"), 204);
  EXPECT_EQ(id_of_.at("Ġ"), 223);  // and a lone space 223
}

TEST_P(TokenizerJsonTest, EndsWithTheMarkersOfTheChatFormats) {
  int64_t first_marker = GetParam();
  for (const char* marker : {"<think>", "</think>", "<｜User｜>", "<｜Assistant｜>", "｜DSML｜", "<｜tool▁sep｜>",
                             "<｜tool▁calls▁begin｜>", "<｜tool▁output▁end｜>", "<|EOT|>"}) {
    ASSERT_TRUE(id_of_.contains(marker)) << marker;
    EXPECT_GE(id_of_.at(marker), GetParam() - 20) << marker;
    first_marker = std::min(first_marker, id_of_.at(marker));
  }
  EXPECT_TRUE(id_of_.contains("<｜place▁holder▁no▁15｜>"));
  EXPECT_LT(id_of_.at("<｜place▁holder▁no▁15｜>"), first_marker);
}

TEST_P(TokenizerJsonTest, MergesKnownTokensIntoKnownTokensInOrderOfId) {
  int64_t last_id = 258;
  for (const auto& merge : root_.at("model").at("merges").as_array()) {
    const std::string text(merge.as_string());
    const size_t space = text.find(' ');
    ASSERT_NE(space, std::string::npos);
    EXPECT_TRUE(id_of_.contains(text.substr(0, space))) << text;
    EXPECT_TRUE(id_of_.contains(text.substr(space + 1))) << text;
    const int64_t id = id_of_.at(text.substr(0, space) + text.substr(space + 1));
    EXPECT_EQ(id, last_id + 1) << text;
    last_id = id;
  }
  EXPECT_GT(last_id, 900);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerJsonTest, ::testing::Values(1024, 4096));

TEST(TokenizerConfigTest, AddsNoTokensByItself) {
  auto parsed = model::ParseJson(BuildTokenizerConfigJson(), "tokenizer_config.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_FALSE(parsed->at("add_bos_token").as_bool());
  EXPECT_FALSE(parsed->at("add_eos_token").as_bool());
  EXPECT_EQ(parsed->at("pad_token").at("content").as_string(), "<｜end▁of▁sentence｜>");
}

}  // namespace
}  // namespace tandem::make_checkpoint

// What a tokenizer.json may say, and that everything else is refused by name instead of being read differently.
#include "router/tokenizer/tokenizer_file.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <functional>

#include "router/tokenizer/small_tokenizer.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

absl::Status ParseChanged(const std::function<void(json::object*)>& change) {
  json::value root = json::parse(SmallTokenizerJson());
  change(&root.as_object());
  return ParseTokenizerFile(json::serialize(root)).status();
}

// Sets the value at a path such as {"model", "dropout"}.
absl::Status ParseWith(const std::vector<std::string>& path, json::value value) {
  return ParseChanged([&](json::object* object) {
    for (size_t i = 0; i + 1 < path.size(); ++i) object = &(*object)[path[i]].as_object();
    (*object)[path.back()] = std::move(value);
  });
}

void ExpectRefusal(const absl::Status& status, const std::string& what) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_NE(status.message().find(what), absl::string_view::npos) << status << " lacks " << what;
}

TEST(TokenizerFileTest, ReadsTheTables) {
  SmallVocabulary vocabulary;
  vocabulary.merges = {{"a", "b"}, {" ", "ab"}};
  absl::StatusOr<TokenizerFile> file = ParseTokenizerFile(SmallTokenizerJson(vocabulary));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->token_bytes[0], "<｜begin▁of▁sentence｜>");
  EXPECT_EQ(file->token_bytes[3], std::string(1, '\0'));
  EXPECT_EQ(file->token_bytes[258], "\xFF");
  EXPECT_EQ(file->token_bytes[259], "ab");
  EXPECT_EQ(file->token_bytes[260], " ab");
  EXPECT_EQ(file->token_bytes[261], "<｜User｜>");
  EXPECT_EQ(file->token_bytes.size(), 265u);
  EXPECT_EQ(file->byte_tokens['a'], TokenId{3 + 'a'});
  ASSERT_EQ(file->merges.size(), 2u);
  EXPECT_EQ(file->merges[1].left, TokenId{3 + ' '});
  EXPECT_EQ(file->merges[1].right, TokenId{259});
  EXPECT_EQ(file->merges[1].result, TokenId{260});
  ASSERT_EQ(file->added_tokens.size(), 7u);
  EXPECT_TRUE(file->added_tokens[0].is_special);
  EXPECT_FALSE(file->added_tokens[3].is_special);
  EXPECT_TRUE(file->added_tokens[3].is_normalized);
  ASSERT_EQ(file->split_steps.size(), 3u);
  EXPECT_EQ(file->split_steps[0].pattern, "\\p{N}{1,3}");
}

TEST(TokenizerFileTest, BothSpellingsOfMergesMeanTheSame) {
  SmallVocabulary vocabulary;
  absl::StatusOr<TokenizerFile> strings = ParseTokenizerFile(SmallTokenizerJson(vocabulary));
  vocabulary.has_merges_as_arrays = true;
  absl::StatusOr<TokenizerFile> arrays = ParseTokenizerFile(SmallTokenizerJson(vocabulary));
  ASSERT_TRUE(strings.ok() && arrays.ok());
  ASSERT_EQ(strings->merges.size(), arrays->merges.size());
  for (size_t rank = 0; rank < strings->merges.size(); ++rank) {
    EXPECT_EQ(strings->merges[rank].left, arrays->merges[rank].left);
    EXPECT_EQ(strings->merges[rank].right, arrays->merges[rank].right);
    EXPECT_EQ(strings->merges[rank].result, arrays->merges[rank].result);
  }
}

TEST(TokenizerFileTest, IdsMayHaveGaps) { EXPECT_TRUE(ParseWith({"model", "vocab", "zz"}, 5000).ok()); }

TEST(TokenizerFileTest, PassesOverWhatTheRouterDoesNotUse) {
  EXPECT_TRUE(ParseWith({"truncation"}, {{"max_length", 10}}).ok());
  EXPECT_TRUE(ParseWith({"padding"}, {{"pad_id", 1}}).ok());
  EXPECT_TRUE(ParseWith({"post_processor"}, {{"type", "TemplateProcessing"}}).ok());
  EXPECT_TRUE(ParseWith({"normalizer"}, nullptr).ok());
  EXPECT_TRUE(ParseWith({"model", "ignore_merges"}, false).ok());
}

TEST(TokenizerFileTest, RefusesOtherModels) {
  ExpectRefusal(ParseWith({"model", "type"}, "Unigram"), "model.type: Unigram is not supported");
  ExpectRefusal(ParseWith({"model", "dropout"}, 0.1), "model.dropout");
  ExpectRefusal(ParseWith({"model", "unk_token"}, "<unk>"), "model.unk_token");
  ExpectRefusal(ParseWith({"model", "continuing_subword_prefix"}, "##"), "model.continuing_subword_prefix");
  ExpectRefusal(ParseWith({"model", "end_of_word_suffix"}, "</w>"), "model.end_of_word_suffix");
  ExpectRefusal(ParseWith({"model", "byte_fallback"}, true), "model.byte_fallback");
  ExpectRefusal(ParseWith({"model", "ignore_merges"}, true), "model.ignore_merges");
}

TEST(TokenizerFileTest, RefusesOtherNormalizersAndDecoders) {
  ExpectRefusal(ParseWith({"normalizer"}, {{"type", "NFC"}}), "normalizer: NFC is not supported");
  ExpectRefusal(ParseWith({"normalizer"}, {{"type", "Sequence"}, {"normalizers", json::array{1}}}), "normalizer");
  ExpectRefusal(ParseWith({"decoder"}, {{"type", "WordPiece"}}), "decoder");
  ExpectRefusal(ParseWith({"decoder"}, nullptr), "decoder");
}

TEST(TokenizerFileTest, RefusesOtherPreTokenizers) {
  const auto with_step = [](const json::value& step) {
    return ParseChanged([&](json::object* root) {
      json::array& steps = (*root)["pre_tokenizer"].as_object()["pretokenizers"].as_array();
      steps.insert(steps.begin(), step);
    });
  };
  ExpectRefusal(with_step({{"type", "Digits"}}), "pre_tokenizer: step Digits is not supported");
  ExpectRefusal(with_step({{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Removed"}}), "behavior");
  ExpectRefusal(
      with_step({{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Isolated"}, {"invert", true}}),
      "inverted");
  ExpectRefusal(with_step({{"type", "Split"}, {"pattern", "a"}, {"behavior", "Isolated"}}), "no pattern");
  ExpectRefusal(ParseWith({"pre_tokenizer"}, nullptr), "pre_tokenizer");
  ExpectRefusal(ParseWith({"pre_tokenizer"}, {{"type", "Whitespace"}}), "does not end with a ByteLevel");
  ExpectRefusal(ParseWith({"pre_tokenizer"}, {{"type", "ByteLevel"}}), "use_regex");
  ExpectRefusal(ParseWith({"pre_tokenizer"}, {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}}),
                "add_prefix_space");
}

TEST(TokenizerFileTest, RefusesBrokenTables) {
  ExpectRefusal(ParseTokenizerFile("{").status(), "not valid JSON");
  ExpectRefusal(ParseTokenizerFile("[]").status(), "not a JSON object");
  ExpectRefusal(ParseWith({"model"}, nullptr), "model: is not an object");
  ExpectRefusal(ParseWith({"model", "vocab"}, json::array()), "model.vocab");
  ExpectRefusal(ParseWith({"model", "vocab", "zz"}, -1), "model.vocab");
  ExpectRefusal(ParseWith({"model", "vocab", "zz"}, int64_t{1} << 40), "model.vocab");
  ExpectRefusal(ParseWith({"model", "vocab", "zz"}, 100), "id 100 is given twice");
  ExpectRefusal(ParseWith({"model", "vocab", ""}, 5000), "empty token");
  ExpectRefusal(ParseChanged([](json::object* root) { (*root)["model"].as_object()["vocab"].as_object().erase("a"); }),
                "no token for byte 97");
  ExpectRefusal(ParseWith({"model", "merges"}, json::array{"a z"}), "\"az\" is not in model.vocab");
  ExpectRefusal(ParseWith({"model", "merges"}, json::array{"az"}), "model.merges");
  ExpectRefusal(ParseWith({"model", "merges"}, json::array{"a b c"}), "model.merges");
  ExpectRefusal(ParseWith({"model", "merges"}, json::array{json::array{"a"}}), "model.merges");
}

TEST(TokenizerFileTest, RefusesAddedTokensWithRulesItDoesNotFollow) {
  const auto with_token = [](const char* key, json::value value) {
    return ParseChanged(
        [&](json::object* root) { (*root)["added_tokens"].as_array()[0].as_object()[key] = std::move(value); });
  };
  ExpectRefusal(with_token("lstrip", true), "lstrip is not supported");
  ExpectRefusal(with_token("rstrip", true), "rstrip is not supported");
  ExpectRefusal(with_token("single_word", true), "single_word is not supported");
  ExpectRefusal(with_token("content", ""), "has no content");
  ExpectRefusal(with_token("id", "x"), "added_tokens");
}

}  // namespace
}  // namespace tandem::router

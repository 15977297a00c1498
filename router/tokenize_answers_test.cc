// Text to ids and back by the endpoints: as requests for answers are encoded, one or several.
#include "router/tokenize_answers.h"

#include <string>

#include "absl/strings/match.h"
#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/openai/api_error.h"
#include "router/testing/byte_tokenizer.h"

namespace tandem::router {
namespace {

namespace json = boost::json;
using B = ByteTokenizer;

class TokenizeAnswersTest : public testing::Test {
 protected:
  TokenizeAnswersTest() {
    context_.tokenizer = &tokenizer_;
    context_.facts.vocab_size = B::kNumIds;
    context_.facts.context_length = 64;
    context_.facts.bos_token_id = B::kBos;
    context_.facts.eos_token_ids = {B::kEos};
    context_.served_model_name = "m";
    context_.context_length = 64;
  }
  json::value Tokenized(const std::string& body) { return json::parse(TokenizeBody(body, context_).value()); }
  json::value Detokenized(const std::string& body) { return json::parse(DetokenizeBody(body, context_).value()); }
  ByteTokenizer tokenizer_;
  ModelContext context_;
};

TEST_F(TokenizeAnswersTest, ATextBecomesTheIdsThatACompletionHas) {
  EXPECT_EQ(Tokenized(R"({"prompt":"hi"})"), json::parse(R"({"tokens":[256,104,105],"count":3,"max_model_len":64})"));
  EXPECT_EQ(Tokenized(R"({"prompt":"hi","add_special_tokens":false})"),
            json::parse(R"({"tokens":[104,105],"count":2,"max_model_len":64})"));
  EXPECT_EQ(Tokenized(R"({"prompt":"","add_special_tokens":false})").at("count").as_int64(), 0);
  EXPECT_EQ(Tokenized(R"({"prompt":["a","bc"]})"),
            json::parse(R"({"tokens":[[256,97],[256,98,99]],"count":[2,3],"max_model_len":64})"));
}

TEST_F(TokenizeAnswersTest, AChatBecomesTheIdsThatTheModelSees) {
  const json::value body = Tokenized(R"({"model":"m","messages":[{"role":"user","content":"hi"}]})");
  EXPECT_EQ(body.at("tokens"), json::parse("[256,258,104,105,259,261]"));
  EXPECT_FALSE(TokenizeBody(R"({"model":"other","messages":[{"role":"user","content":"hi"}]})", context_).ok());
}

TEST_F(TokenizeAnswersTest, IdsBecomeText) {
  EXPECT_EQ(Detokenized(R"({"tokens":[256,104,105,257]})"), json::parse(R"({"text":"hi","prompt":"hi"})"));
  EXPECT_EQ(Detokenized(R"({"tokens":[104,257],"skip_special_tokens":false})").at("text").as_string(),
            "h<｜end▁of▁sentence｜>");
  EXPECT_EQ(Detokenized(R"({"tokens":[[104],[105]]})").at("text"), json::parse(R"(["h","i"])"));
  EXPECT_TRUE(
      absl::StartsWith(DetokenizeBody(R"({"tokens":[1,999]})", context_).status().message(), "tokens[1]: is 999"));
}

}  // namespace
}  // namespace tandem::router

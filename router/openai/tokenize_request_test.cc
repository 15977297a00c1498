// Bodies of /tokenize, /detokenize and /abort_request.
#include "router/openai/tokenize_request.h"

#include <string>
#include <vector>

#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/openai/abort_request.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

using Ids = std::vector<uint32_t>;

std::string ParamOf(const absl::Status& status) {
  EXPECT_EQ(HttpStatusOf(status), 400) << status;
  const boost::json::value param = boost::json::parse(ErrorBody(status)).at("error").at("param");
  return param.is_string() ? std::string(param.as_string()) : "";
}

TEST(TokenizeRequestTest, TextsOrAChat) {
  const TokenizeRequest text = ParseTokenizeRequest(R"({"model":"any","prompt":"a"})").value();
  EXPECT_EQ(text.prompts->inputs, (std::vector<PromptInput>{"a"}));
  EXPECT_TRUE(text.adds_special_tokens);
  EXPECT_TRUE(ParseTokenizeRequest(R"({"prompt":["a"],"add_special_tokens":false})")->prompts->is_list);
  EXPECT_FALSE(ParseTokenizeRequest(R"({"prompt":["a"],"add_special_tokens":false})")->adds_special_tokens);
  EXPECT_FALSE(ParseTokenizeRequest(R"({"model":"m","messages":[]})")->prompts.has_value());
}

TEST(TokenizeRequestTest, RefusalsNameTheField) {
  EXPECT_EQ(ParamOf(ParseTokenizeRequest("{}").status()), "prompt");
  EXPECT_EQ(ParamOf(ParseTokenizeRequest(R"({"prompt":"a","messages":[]})").status()), "messages");
  EXPECT_EQ(ParamOf(ParseTokenizeRequest(R"({"prompt":[1]})").status()), "prompt[0]");
  EXPECT_EQ(ParamOf(ParseTokenizeRequest(R"({"prompt":"a","add_special_tokens":1})").status()), "add_special_tokens");
  EXPECT_EQ(ParamOf(ParseDetokenizeRequest("{}").status()), "tokens");
  EXPECT_EQ(ParamOf(ParseDetokenizeRequest(R"({"tokens":"a"})").status()), "tokens");
  EXPECT_EQ(ParamOf(ParseDetokenizeRequest(R"({"tokens":[1,-1]})").status()), "tokens[1]");
  EXPECT_EQ(ParamOf(ParseDetokenizeRequest(R"({"tokens":[1],"skip_special_tokens":1})").status()),
            "skip_special_tokens");
}

TEST(TokenizeRequestTest, DetokenizeTakesIdsOrListsOfThem) {
  EXPECT_EQ(ParseDetokenizeRequest(R"({"tokens":[1,2]})")->tokens.inputs, (std::vector<PromptInput>{Ids{1, 2}}));
  EXPECT_TRUE(ParseDetokenizeRequest(R"({"tokens":[[1],[2]]})")->tokens.is_list);
  EXPECT_FALSE(ParseDetokenizeRequest(R"({"tokens":[1],"skip_special_tokens":false})")->skips_special_tokens);
}

TEST(AbortRequestTest, NamesOneRequestOrAll) {
  EXPECT_EQ(ParseAbortRequest(R"({"rid":"x"})").value(), "x");
  EXPECT_EQ(ParseAbortRequest(R"({"rid":"x","abort_all":false})").value(), "x");
  EXPECT_EQ(ParseAbortRequest(R"({"abort_all":true})").value(), "");
  EXPECT_EQ(ParseAbortRequest(R"({"abort_all":true,"rid":""})").value(), "");
  EXPECT_EQ(ParamOf(ParseAbortRequest("{}").status()), "rid") << "nothing named is not everything";
  EXPECT_EQ(ParamOf(ParseAbortRequest(R"({"rid":""})").status()), "rid");
  EXPECT_EQ(ParamOf(ParseAbortRequest(R"({"rid":7})").status()), "rid");
  EXPECT_EQ(ParamOf(ParseAbortRequest(R"({"rid":"x","abort_all":true})").status()), "rid");
  EXPECT_EQ(ParamOf(ParseAbortRequest(R"({"abort_all":"yes"})").status()), "abort_all");
}

}  // namespace
}  // namespace tandem::router

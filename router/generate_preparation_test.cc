// What the workers are asked for a /generate request, and what its answer is told about its prompts.
#include "router/generate_preparation.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/openai/api_error.h"
#include "router/testing/byte_tokenizer.h"

namespace tandem::router {
namespace {

using B = ByteTokenizer;

class GeneratePreparationTest : public testing::Test {
 protected:
  GeneratePreparationTest() {
    context_.tokenizer = &tokenizer_;
    context_.facts.vocab_size = B::kNumIds;
    context_.facts.context_length = 20;
    context_.facts.bos_token_id = B::kBos;
    context_.facts.eos_token_ids = {B::kEos};
    context_.facts.sampling.temperature = 0.6;
    context_.served_model_name = "m";
    context_.context_length = 20;
  }
  PreparedRequest Prepared(const std::string& body) {
    absl::StatusOr<PreparedRequest> prepared = PrepareGenerate(body, context_);
    EXPECT_TRUE(prepared.ok()) << prepared.status();
    return prepared.ok() ? *std::move(prepared) : PreparedRequest();
  }
  std::string ErrorOf(const std::string& body) {
    return std::string(PrepareGenerate(body, context_).status().message());
  }
  ByteTokenizer tokenizer_;
  ModelContext context_;
};

TEST_F(GeneratePreparationTest, TextsBecomeOrdersAsOfCompletions) {
  const PreparedRequest prepared = Prepared(R"({"text":["a","bc"],"sampling_params":{"max_new_tokens":4,"n":2}})");
  ASSERT_EQ(prepared.orders.size(), 2u);
  EXPECT_EQ(prepared.orders[1].prompt, (std::vector<TokenId>{B::kBos, 'b', 'c'}));
  EXPECT_EQ(prepared.orders[1].num_choices, 2u);
  EXPECT_EQ(prepared.orders[1].max_new_tokens, 4u);
  EXPECT_FLOAT_EQ(prepared.orders[1].temperature, 0.6f) << "the checkpoint's default";
  EXPECT_EQ(prepared.model, "m");
  EXPECT_FALSE(prepared.allows_comments);
  EXPECT_TRUE(prepared.wants_tokens);
}

TEST_F(GeneratePreparationTest, TheAnswerKnowsItsPrompts) {
  const PreparedRequest prepared = Prepared(R"({"input_ids":[[1,2,3],[4]],"rid":["x","y"]})");
  EXPECT_EQ(prepared.prompt_ids, (std::vector<std::string>{"x", "y"}));
  const auto format = prepared.make_format({"gnt-1", 0, "m", {"x", "y"}});
  const boost::json::value body = boost::json::parse(format->WholeBody(std::vector<WholeChoice>(2), {}));
  EXPECT_EQ(body.at(0).at("meta_info").at("id").as_string(), "x");
  EXPECT_EQ(body.at(0).at("meta_info").at("prompt_tokens").as_int64(), 3);
  EXPECT_EQ(body.at(1).at("meta_info").at("prompt_tokens").as_int64(), 1);
}

TEST_F(GeneratePreparationTest, RefusalsNameTheFieldWhereItStands) {
  EXPECT_TRUE(absl::StartsWith(ErrorOf(R"({"input_ids":[[1],[999]]})"), "input_ids[1][0]: is 999"));
  EXPECT_TRUE(absl::StartsWith(ErrorOf(R"({"text":"aaaaaaaaaaaaaaaaaaaaaaaaa"})"), "text: the prompt has 26 tokens"));
  EXPECT_TRUE(absl::StartsWith(ErrorOf(R"({"text":"a","sampling_params":{"stop_token_ids":[999]}})"),
                               "sampling_params.stop_token_ids[0]: is 999"));
  EXPECT_TRUE(absl::StartsWith(ErrorOf(R"({"text":"a","sampling_params":{"logit_bias":{"999":1}}})"),
                               "sampling_params.logit_bias[999]: is 999"));
  EXPECT_TRUE(absl::StartsWith(ErrorOf(R"({"text":["a","b"],"sampling_params":{"n":65}})"),
                               "sampling_params.n: is 65 for 2 prompts"));
}

}  // namespace
}  // namespace tandem::router

// Which bodies are completion requests, every form of a prompt, and that every refusal names its field.
#include "router/openai/completion_request.h"

#include <string>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "router/openai/refusals.h"

namespace tandem::router {
namespace {

using Ids = std::vector<uint32_t>;

std::string Body(const std::string& prompt, const std::string& members = "") {
  return R"({"model":"m","prompt":)" + prompt + (members.empty() ? "" : "," + members) + "}";
}
CompletionRequest Parsed(const std::string& body) {
  absl::StatusOr<CompletionRequest> request = ParseCompletionRequest(body);
  EXPECT_TRUE(request.ok()) << body << ": " << request.status();
  return request.ok() ? *request : CompletionRequest();
}

TEST(CompletionRequestTest, PromptMayBeATextIdsOrAListOfEither) {
  EXPECT_EQ(Parsed(Body(R"("a\u00e9")")).prompts.inputs, (std::vector<PromptInput>{"a\u00e9"}));
  EXPECT_EQ(Parsed(Body(R"(["a","","c"])")).prompts.inputs, (std::vector<PromptInput>{"a", "", "c"}));
  EXPECT_EQ(Parsed(Body("[1,2]")).prompts.inputs, (std::vector<PromptInput>{Ids{1, 2}}));
  EXPECT_EQ(Parsed(Body("[[1],[2,3]]")).prompts.inputs, (std::vector<PromptInput>{Ids{1}, Ids{2, 3}}));
  EXPECT_EQ(Parsed(Body(R"("a")")).prompts.PathOf(0), "prompt");
  EXPECT_EQ(Parsed(Body("[1,2]")).prompts.PathOf(0), "prompt");
  EXPECT_EQ(Parsed(Body("[[1,2]]")).prompts.PathOf(0), "prompt[0]");
}

TEST(CompletionRequestTest, DefaultsAreTheApis) {
  const CompletionRequest request = Parsed(Body(R"("a")"));
  EXPECT_EQ(request.generation.max_new_tokens, 16);
  EXPECT_EQ(request.generation.num_choices, 1);
  EXPECT_FALSE(request.generation.wants_logprobs);
  EXPECT_FALSE(request.echoes);
  EXPECT_TRUE(request.adds_special_tokens);
}

TEST(CompletionRequestTest, ReadsWhatChatRequestsHaveAndItsOwnFields) {
  const CompletionRequest request = Parsed(
      Body(R"("a")", R"("max_tokens":3,"n":2,"best_of":2,"suffix":"","echo":false,"logprobs":0,"stop":"x","stream":true,
         "stream_options":{"include_usage":true},"seed":4,"add_special_tokens":false,"user":"u")"));
  EXPECT_EQ(request.generation.max_new_tokens, 3);
  EXPECT_EQ(request.generation.num_choices, 2);
  EXPECT_TRUE(request.generation.wants_logprobs) << "0 asks for the tokens' own logprobs";
  EXPECT_EQ(request.generation.num_top_logprobs, 0);
  EXPECT_EQ(request.generation.stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(request.generation.includes_usage);
  EXPECT_FALSE(request.adds_special_tokens);
  EXPECT_EQ(Parsed(Body(R"("a")", R"("logprobs":5)")).generation.num_top_logprobs, 5);
  EXPECT_TRUE(Parsed(Body(R"("a")", R"("echo":true)")).echoes);
  EXPECT_FALSE(Parsed(Body(R"("a")", R"("logprobs":null,"echo":null,"suffix":null,"best_of":null)")).echoes);
}

TEST(CompletionRequestTest, AnEchoWithLogprobsAsksForThePrompts) {
  EXPECT_EQ(Parsed(Body(R"("a")", R"("echo":true,"logprobs":0)")).generation.prompt_logprobs_begin, 0);
  EXPECT_FALSE(Parsed(Body(R"("a")", R"("echo":true)")).generation.prompt_logprobs_begin.has_value());
  EXPECT_FALSE(Parsed(Body(R"("a")", R"("logprobs":3)")).generation.prompt_logprobs_begin.has_value());
  EXPECT_EQ(Parsed(Body(R"("a")", R"("max_tokens":0)")).generation.max_new_tokens, 0);
}

TEST(CompletionRequestTest, BestOfDrawsMoreThanAreReturned) {
  const CompletionRequest request = Parsed(Body(R"("a")", R"("best_of":5,"n":2)"));
  EXPECT_EQ(request.generation.num_choices, 5);
  EXPECT_EQ(request.num_returned, 2);
  EXPECT_EQ(Parsed(Body(R"("a")", R"("n":3)")).num_returned, 3);
}

TEST(CompletionRequestTest, RefusesWithTheFieldAndTheReason) {
  const std::vector<Refusal> kRefusals = {
      {R"({"model":"m"})", "prompt", "is required"},
      {R"({"prompt":"a"})", "model", "is required"},
      {Body("null"), "prompt", "is required"},
      {Body("7"), "prompt", "must be a string, token ids, or a list of either, got an integer"},
      {Body("{}"), "prompt", "got an object"},
      {Body("[]"), "prompt", "at least one prompt"},
      {Body("[[]]"), "prompt[0]", "at least one token id"},
      {Body("[true]"), "prompt[0]", "must be a string, a token id, or an array of token ids, got a boolean"},
      {Body(R"(["a",1])"), "prompt[1]", "must be a string as the first one, got an integer"},
      {Body(R"([1,"a"])"), "prompt[1]", "must be a token id, got a string"},
      {Body("[1,2.5]"), "prompt[1]", "must be a token id, got a number"},
      {Body("[1,-2]"), "prompt[1]", "must be a token id, got -2"},
      {Body("[4294967296]"), "prompt[0]", "must be a token id, got 4294967296"},
      {Body("[[1],2]"), "prompt[1]", "must be an array of token ids as the first one"},
      {Body(R"([[1],["a"]])"), "prompt[1][0]", "must be a token id, got a string"},
      {Body(R"("a")", R"("max_tokens":-1)"), "max_tokens", "at least 0, got -1"},
      {Body(R"("a")", R"("min_tokens":17)"), "min_tokens", "is 17, above max_tokens, 16 by default"},
      {Body(R"("a")", R"("logprobs":true)"), "logprobs", "must be an integer, got a boolean"},
      {Body(R"("a")", R"("logprobs":21)"), "logprobs", "at most 20"},
      {Body(R"("a")", R"("logprobs":-1)"), "logprobs", "at least 0"},
      {Body(R"("a")", R"("suffix":"b")"), "suffix", "only \"\" may be sent"},
      {Body(R"("a")", R"("best_of":3,"stream":true)"), "best_of", "only where stream is not true"},
      {Body(R"("a")", R"("best_of":2,"n":3)"), "best_of", "is 2, below n, 3"},
      {Body(R"("a")", R"("best_of":0)"), "best_of", "at least 1"},
      {Body(R"("a")", R"("echo":1)"), "echo", "must be a boolean"},
      {Body(R"("a")", R"("prompt_logprobs":1)"), "prompt_logprobs", "not supported"},
      {Body(R"("a")", R"("stream_options":{})"), "stream_options", "only where stream is true"},
  };
  ExpectRefused(kRefusals, [](const std::string& body) { return ParseCompletionRequest(body); });
}

TEST(CompletionRequestTest, PromptsAreBounded) {
  std::string prompts = "[";
  for (int64_t i = 0; i <= kChoicesMax; ++i) prompts += i == 0 ? "\"\"" : ",\"\"";
  EXPECT_FALSE(ParseCompletionRequest(Body(prompts + "]")).ok());
}

}  // namespace
}  // namespace tandem::router

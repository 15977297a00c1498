// Which bodies are /generate requests, and that every refusal names its field where it stands.
#include "router/openai/generate_request.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "router/openai/refusals.h"

namespace tandem::router {
namespace {

using Ids = std::vector<uint32_t>;

GenerateRequest Parsed(const std::string& body) {
  absl::StatusOr<GenerateRequest> request = ParseGenerateRequest(body);
  EXPECT_TRUE(request.ok()) << body << ": " << request.status();
  return request.ok() ? *request : GenerateRequest();
}

TEST(GenerateRequestTest, PromptsAreTextsOrIds) {
  EXPECT_EQ(Parsed(R"({"text":"a"})").prompts.inputs, (std::vector<PromptInput>{"a"}));
  EXPECT_EQ(Parsed(R"({"text":["a","b"]})").prompts.inputs, (std::vector<PromptInput>{"a", "b"}));
  EXPECT_EQ(Parsed(R"({"input_ids":[1,2]})").prompts.inputs, (std::vector<PromptInput>{Ids{1, 2}}));
  EXPECT_EQ(Parsed(R"({"input_ids":[[1],[2]]})").prompts.inputs, (std::vector<PromptInput>{Ids{1}, Ids{2}}));
  EXPECT_EQ(Parsed(R"({"input_ids":[[1],[2]],"text":null})").prompts.PathOf(1), "input_ids[1]");
  EXPECT_FALSE(Parsed(R"({"text":"a"})").prompts.is_list);
  EXPECT_TRUE(Parsed(R"({"text":["a"]})").prompts.is_list);
}

TEST(GenerateRequestTest, SamplingStandsInSamplingParams) {
  const GenerateRequest request = Parsed(
      R"({"text":"a","temperature":1.5,"stream":true,"return_logprob":true,"top_logprobs_num":3,"rid":"r","sampling_params":{
        "temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,"max_new_tokens":9,"min_new_tokens":2,"n":3,"stop":["x"],
        "stop_token_ids":[4],"ignore_eos":true,"sampling_seed":-1,"frequency_penalty":1,"presence_penalty":-1,
        "repetition_penalty":1.5,"logit_bias":{"7":2},"skip_special_tokens":true,"regex":null,"stop_regex":[],
        "spaces_between_special_tokens":true}})");
  const GenerationFields& fields = request.generation;
  EXPECT_EQ(fields.temperature, 0.5) << "the field of the body itself means nothing here";
  EXPECT_EQ(fields.top_p, 0.9);
  EXPECT_EQ(fields.top_k, 7);
  EXPECT_EQ(fields.min_p, 0.1);
  EXPECT_EQ(fields.max_new_tokens, 9);
  EXPECT_EQ(fields.min_new_tokens, 2);
  EXPECT_EQ(fields.num_choices, 3);
  EXPECT_EQ(fields.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(fields.stop_token_ids, Ids{4});
  EXPECT_TRUE(fields.ignores_eos);
  EXPECT_EQ(fields.seed, ~uint64_t{0});
  EXPECT_EQ(fields.frequency_penalty, 1);
  EXPECT_EQ(fields.presence_penalty, -1);
  EXPECT_EQ(fields.repetition_penalty, 1.5);
  ASSERT_EQ(fields.logit_bias.size(), 1u);
  EXPECT_TRUE(fields.is_stream);
  EXPECT_TRUE(fields.wants_logprobs);
  EXPECT_EQ(fields.num_top_logprobs, 3);
  EXPECT_EQ(fields.id, "r");
}

TEST(GenerateRequestTest, WhatBenchServingAndTheFrontendSendIsTaken) {
  const GenerateRequest bench = Parsed(
      R"({"text":"a","sampling_params":{"temperature":0.0,"max_new_tokens":4,"ignore_eos":true},"stream":true,
        "lora_path":null,"return_logprob":false,"return_routed_experts":false,"logprob_start_len":-1,"image_data":null})");
  EXPECT_EQ(bench.generation.max_new_tokens, 4);
  EXPECT_TRUE(bench.generation.ignores_eos);
  EXPECT_EQ(Parsed(R"({"text":"a","sampling_params":null})").generation.max_new_tokens, 128);
}

TEST(GenerateRequestTest, LogprobStartLenAsksForThePrompts) {
  EXPECT_EQ(Parsed(R"({"text":"a","return_logprob":true,"logprob_start_len":2})").generation.prompt_logprobs_begin, 2);
  EXPECT_FALSE(Parsed(R"({"text":"a","return_logprob":true,"logprob_start_len":-1})")
                   .generation.prompt_logprobs_begin.has_value());
  EXPECT_FALSE(Parsed(R"({"text":"a","logprob_start_len":2})").generation.prompt_logprobs_begin.has_value())
      << "without return_logprob it means nothing";
  EXPECT_EQ(Parsed(R"({"text":"a","sampling_params":{"max_new_tokens":0}})").generation.max_new_tokens, 0);
}

TEST(GenerateRequestTest, EachPromptMayHaveItsOwnId) {
  EXPECT_EQ(Parsed(R"({"text":["a","b"],"rid":["x","y"]})").prompt_ids, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(Parsed(R"({"text":["a","b"],"rid":"x"})").prompt_ids.empty());
  EXPECT_EQ(Parsed(R"({"text":"a","cache_salt":"s","priority":-7})").generation.cache_salt, "s");
  EXPECT_EQ(Parsed(R"({"text":"a","cache_salt":"s","priority":-7})").generation.priority, -7);
  EXPECT_EQ(Parsed(R"({"text":"a","extra_key":"k","cache_salt":null})").generation.cache_salt, "k");
}

TEST(GenerateRequestTest, RefusesWithTheFieldAndTheReason) {
  const std::string long_id(257, 'x');
  const std::vector<Refusal> kRefusals = {
      {"{}", "text", "is required, or input_ids"},
      {R"({"text":"a","input_ids":[1]})", "input_ids", "only where text is not sent"},
      {R"({"text":[1]})", "text[0]", "must be a string, got an integer"},
      {R"({"text":7})", "text", "must be a string or a list of strings"},
      {R"({"input_ids":"a"})", "input_ids", "must be token ids"},
      {R"({"input_ids":["a"]})", "input_ids[0]", "must be a token id, or an array of token ids, got a string"},
      {R"({"input_ids":[[]]})", "input_ids[0]", "at least one token id"},
      {R"({"text":"a","sampling_params":[]})", "sampling_params", "must be an object, got an array"},
      {R"({"text":"a","sampling_params":{"temperature":-1}})", "sampling_params.temperature", "at least 0"},
      {R"({"text":"a","sampling_params":{"max_new_tokens":-1}})", "sampling_params.max_new_tokens", "got -1"},
      {R"({"text":"a","sampling_params":{"min_new_tokens":129}})", "sampling_params.min_new_tokens",
       "above max_new_tokens, 128 by default"},
      {R"({"text":"a","sampling_params":{"n":0}})", "sampling_params.n", "at least 1"},
      {R"({"text":"a","sampling_params":{"stop":[""]}})", "sampling_params.stop[0]", "must not be empty"},
      {R"({"text":"a","sampling_params":{"logit_bias":{"a":1}}})", "sampling_params.logit_bias", "token ids"},
      {R"({"text":"a","sampling_params":{"sampling_seed":"1"}})", "sampling_params.sampling_seed", "an integer"},
      {R"({"text":"a","sampling_params":{"structural_tag":"{}"}})", "sampling_params.structural_tag.triggers",
       "must be an array with at least one element"},
      {R"({"text":"a","sampling_params":{"regex":"a*","ebnf":"root ::= \"a\""}})", "sampling_params.ebnf",
       "is allowed only where sampling_params.regex is not sent"},
      {R"({"text":"a","sampling_params":{"regex":""}})", "sampling_params.regex", "must not be empty"},
      {R"({"text":"a","sampling_params":{"json_schema":{"type":"object"}}})", "sampling_params.json_schema",
       "must be a string, got an object"},
      {R"({"text":"a","sampling_params":{"json_schema":"{"}})", "sampling_params.json_schema", "not valid JSON"},
      {R"({"text":"a","sampling_params":{"stop_regex":"a"}})", "sampling_params.stop_regex", "not supported"},
      {R"({"text":"a","logprob_start_len":-2})", "logprob_start_len", "at least -1"},
      {R"({"text":"a","stream":1})", "stream", "must be a boolean"},
      {R"({"text":"a","top_logprobs_num":1})", "top_logprobs_num", "only where return_logprob is true"},
      {R"({"text":"a","return_logprob":true,"top_logprobs_num":21})", "top_logprobs_num", "at most 20"},
      {R"({"text":"a","rid":""})", "rid", "from 1 to 256 bytes, got 0"},
      {R"({"text":"a","cache_salt":3})", "cache_salt", "must be a string"},
      {R"({"text":"a","cache_salt":"a","extra_key":"b"})", "extra_key", "another name of cache_salt"},
      {R"({"text":"a","priority":2147483648})", "priority", "2147483647"},
      {R"({"text":"a","rid":")" + long_id + "\"}", "rid", "from 1 to 256 bytes, got 257"},
      {R"({"text":"a","rid":"a\nb"})", "rid", "no control characters"},
      {R"({"text":"a","rid":["x","y"]})", "rid", "has 2 ids for 1 prompts"},
      {R"({"text":["a","b"],"rid":["x","x"]})", "rid[1]", "for the second time"},
      {R"({"text":["a","b"],"rid":["x",1]})", "rid[1]", "must be a string"},
      {R"({"text":"a","input_embeds":[[1]]})", "input_embeds", "not supported"},
      {R"({"text":"a","image_data":"x"})", "image_data", "not supported"},
      {R"({"text":"a","return_hidden_states":true})", "return_hidden_states", "not supported"},
  };
  ExpectRefused(kRefusals, [](const std::string& body) { return ParseGenerateRequest(body); });
}

}  // namespace
}  // namespace tandem::router

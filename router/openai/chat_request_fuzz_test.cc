// Bodies that nobody meant: mutations of real ones, given to every endpoint's parser. Whatever comes in, a parser ends,
// and what it refuses it refuses as an error object of one line of valid JSON with status 400.
//
// Deterministic: seeds are fixed, a failure prints its body.
#include <random>
#include <string>
#include <vector>

#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/openai/api_error.h"
#include "router/openai/chat_request.h"
#include "router/openai/completion_request.h"
#include "router/openai/generate_request.h"

namespace tandem::router {
namespace {

const std::vector<std::string>& Corpus() {
  static const auto* corpus = new std::vector<std::string>{
      R"({"model":"m","messages":[{"role":"user","content":"hi"}]})",
      R"({"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"\ud83d\ude42"}]},)"
      R"({"role":"user","content":"a\n\"b\""}],"stop":["x","y"],"stream":true,"stream_options":{"include_usage":true}})",
      R"({"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":)"
      R"([{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},)"
      R"({"role":"tool","tool_call_id":"c","content":"r"}],"temperature":0.5,"top_p":1,"top_k":-1,"seed":-7})",
      R"({"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f",)"
      R"("parameters":{"type":"object","properties":{"x":{"type":"string","minimum":1.0}}}}}],"tool_choice":"auto"})",
      R"({"model":"m","prompt":["a","\ud83d\ude42",""],"n":2,"echo":true,"logprobs":null,"best_of":2,"suffix":""})",
      R"({"model":"m","prompt":[[1,2],[3]],"logprobs":5,"max_tokens":9,"logit_bias":{"7":1e2},"stop":"x"})",
      R"({"text":["a","b"],"rid":["x","y"],"stream":true,"sampling_params":{"max_new_tokens":3,"stop":["q"],"n":2,)"
      R"("temperature":0,"top_k":-1,"stop_regex":[]},"return_logprob":true,"top_logprobs_num":2})",
      R"({"input_ids":[1,2,3],"rid":"x","sampling_params":{"min_new_tokens":1,"sampling_seed":-3,"logit_bias":{"7":1}}})",
      R"({"prompt":[0,4294967295],"model":"m","add_special_tokens":false,"stream":true})",
      R"({"max_tokens":1,"model":"m","chat_template_kwargs":{"thinking":true},"reasoning_effort":"high",)"
      R"("stop_token_ids":[1,2],"messages":[{"role":"developer","content":""}],"logit_bias":{"5":-100,"6":1.5},)"
      R"("n":2,"logprobs":true,"top_logprobs":3,"min_p":0.1,"presence_penalty":-1,"min_tokens":1})",
  };
  return *corpus;
}

// Pieces that parsers are sensitive to.
const std::vector<std::string>& Tokens() {
  static const auto* tokens = new std::vector<std::string>{
      "{",       "}",         "[",
      "]",       ",",         ":",
      "\"",      "\\",        "\\u0000",
      "\\ud83d", "\\udc00",   "null",
      "1",       "-",         "1e999",
      "0.1",     "true",      "false",
      "\xff",    "\xc0\x80",  "\xed\xa0\x80",
      "\0",      " ",         "\n",
      "1e-9",    "[[[[",      "{}{}",
      "\"n\":",  "\"stop\":", "18446744073709551616",
  };
  return *tokens;
}

std::string Tail(const std::string& text, size_t draw) { return text.substr(draw % text.size()); }

std::string Mutate(std::string body, std::mt19937& random) {
  const int num_mutations = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < num_mutations; ++i) {
    const size_t at = body.empty() ? 0 : random() % body.size();
    switch (random() % 5) {
      case 0:
        body.erase(at, random() % 8);
        break;
      case 1:
        body.insert(at, Tokens()[random() % Tokens().size()]);
        break;
      case 2:
        if (!body.empty()) body[at] = static_cast<char>(random());
        break;
      case 3:
        body.insert(at, body.substr(random() % (at + 1), random() % 40));
        break;
      default:
        body = body.substr(0, at) + Tail(Corpus()[random() % Corpus().size()], random());
        break;
    }
  }
  return body;
}

void ExpectRefusal(const absl::Status& status, const std::string& body) {
  ASSERT_EQ(HttpStatusOf(status), 400) << body;
  const std::string error = ErrorBody(status);
  ASSERT_EQ(error.find('\n'), std::string::npos) << body;
  boost::json::error_code parse_error;
  boost::json::parse(error, parse_error);
  ASSERT_FALSE(parse_error) << body << "\n" << error;
}

TEST(ChatRequestFuzzTest, EveryBodyIsARequestOrAWellFormedRefusal) {
  std::mt19937 random(20261130);
  int num_chats = 0, num_completions = 0, num_generates = 0, num_refusals = 0;
  for (int round = 0; round < 100'000; ++round) {
    const std::string body = Mutate(Corpus()[random() % Corpus().size()], random);
    const absl::StatusOr<ChatRequest> chat = ParseChatRequest(body);
    if (chat.ok()) {
      ++num_chats;
      ASSERT_FALSE(chat->messages.empty()) << body;
      ASSERT_GE(chat->generation.max_new_tokens.value_or(1), 1) << body;
    } else {
      ++num_refusals;
      ASSERT_NO_FATAL_FAILURE(ExpectRefusal(chat.status(), body));
    }
    const absl::StatusOr<CompletionRequest> completion = ParseCompletionRequest(body);
    if (completion.ok()) {
      ++num_completions;
      ASSERT_FALSE(completion->prompts.inputs.empty()) << body;
      ASSERT_GE(completion->generation.max_new_tokens.value_or(-1), 0) << body;
    } else {
      ++num_refusals;
      ASSERT_NO_FATAL_FAILURE(ExpectRefusal(completion.status(), body));
    }
    const absl::StatusOr<GenerateRequest> generate = ParseGenerateRequest(body);
    if (generate.ok()) {
      ++num_generates;
      ASSERT_FALSE(generate->prompts.inputs.empty()) << body;
      ASSERT_GE(generate->generation.max_new_tokens.value_or(-1), 0) << body;
    } else {
      ++num_refusals;
      ASSERT_NO_FATAL_FAILURE(ExpectRefusal(generate.status(), body));
    }
  }
  EXPECT_GT(num_chats, 1000) << "the mutations are too wild to reach the checks behind the parser";
  EXPECT_GT(num_completions, 1000);
  EXPECT_GT(num_generates, 1000);
  EXPECT_GT(num_refusals, 1000);
}

}  // namespace
}  // namespace tandem::router

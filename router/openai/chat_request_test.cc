// Which bodies are requests, what they mean, and that every refusal names its field.
#include "router/openai/chat_request.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "router/openai/refusals.h"

namespace tandem::router {
namespace {

// A valid request with further members.
std::string Body(const std::string& members) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + (members.empty() ? "" : "," + members) + "}";
}

ChatRequest Parsed(const std::string& body) {
  absl::StatusOr<ChatRequest> request = ParseChatRequest(body);
  EXPECT_TRUE(request.ok()) << body << ": " << request.status();
  return request.ok() ? *request : ChatRequest();
}

TEST(ChatRequestTest, SmallestRequestLeavesEverythingToTheDefaults) {
  const ChatRequest request = Parsed(Body(""));
  EXPECT_EQ(request.generation.model, "m");
  ASSERT_EQ(request.messages.size(), 1u);
  EXPECT_EQ(request.messages[0].role, ChatRole::kUser);
  EXPECT_EQ(request.messages[0].content, "hi");
  EXPECT_FALSE(request.generation.temperature.has_value());
  EXPECT_FALSE(request.generation.top_p.has_value());
  EXPECT_FALSE(request.generation.top_k.has_value());
  EXPECT_FALSE(request.generation.seed.has_value());
  EXPECT_FALSE(request.generation.max_new_tokens.has_value());
  EXPECT_TRUE(request.generation.stop.empty());
  EXPECT_FALSE(request.generation.is_stream);
  EXPECT_FALSE(request.generation.includes_usage);
  EXPECT_FALSE(request.is_thinking);
  EXPECT_FALSE(request.generation.ignores_eos);
  EXPECT_EQ(request.generation.num_choices, 1);
  EXPECT_EQ(request.generation.min_p, 0);
  EXPECT_EQ(request.generation.repetition_penalty, 1);
  EXPECT_EQ(request.generation.frequency_penalty, 0);
  EXPECT_EQ(request.generation.presence_penalty, 0);
  EXPECT_EQ(request.generation.min_new_tokens, 0);
  EXPECT_TRUE(request.generation.logit_bias.empty());
  EXPECT_FALSE(request.generation.wants_logprobs);
}

TEST(ChatRequestTest, ReadsEverySupportedField) {
  const ChatRequest request = Parsed(Body(
      R"("temperature":0.5,"top_p":1,"top_k":40,"seed":7,"max_tokens":12,"stop":["a","b"],"stop_token_ids":[3,4],
         "ignore_eos":true,"stream":true,"stream_options":{"include_usage":true},"n":3,"min_p":0.1,
         "repetition_penalty":1.1,"frequency_penalty":-2,"presence_penalty":0.5,"min_tokens":4,
         "logit_bias":{"7":-100,"0":2.5},"logprobs":true,"top_logprobs":20,
         "chat_template_kwargs":{"thinking":true})"));
  EXPECT_EQ(request.generation.temperature, 0.5);
  EXPECT_EQ(request.generation.top_p, 1.0);
  EXPECT_EQ(request.generation.top_k, 40);
  EXPECT_EQ(request.generation.seed, 7u);
  EXPECT_EQ(request.generation.max_new_tokens, 12);
  EXPECT_EQ(request.generation.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.generation.stop_token_ids, (std::vector<uint32_t>{3, 4}));
  EXPECT_TRUE(request.generation.ignores_eos);
  EXPECT_TRUE(request.generation.is_stream);
  EXPECT_TRUE(request.generation.includes_usage);
  EXPECT_TRUE(request.is_thinking);
  EXPECT_EQ(request.generation.num_choices, 3);
  EXPECT_EQ(request.generation.min_p, 0.1);
  EXPECT_EQ(request.generation.repetition_penalty, 1.1);
  EXPECT_EQ(request.generation.frequency_penalty, -2);
  EXPECT_EQ(request.generation.presence_penalty, 0.5);
  EXPECT_EQ(request.generation.min_new_tokens, 4);
  EXPECT_EQ(request.generation.logit_bias, (std::vector<std::pair<uint32_t, float>>{{7, -100.0f}, {0, 2.5f}}));
  EXPECT_TRUE(request.generation.wants_logprobs);
  EXPECT_EQ(request.generation.num_top_logprobs, 20);
}

TEST(ChatRequestTest, NullCountsAsAbsent) {
  const ChatRequest request = Parsed(Body(
      R"("temperature":null,"top_p":null,"top_k":null,"seed":null,"max_tokens":null,"max_completion_tokens":null,
         "stop":null,"stream":null,"stream_options":null,"tools":null,"logprobs":null,"n":null,
         "chat_template_kwargs":null,"reasoning_effort":null,"response_format":null,"logit_bias":null)"));
  EXPECT_FALSE(request.generation.temperature.has_value());
  EXPECT_FALSE(request.generation.max_new_tokens.has_value());
  EXPECT_TRUE(request.generation.stop.empty());
}

TEST(ChatRequestTest, UnknownFieldsAndThoseWithoutEffectAreTolerated) {
  Parsed(Body(R"("user":"u","metadata":{"a":"b"},"store":false,"service_tier":"auto","parallel_tool_calls":true,
                 "n":1,"frequency_penalty":0,"presence_penalty":0.0,"repetition_penalty":1.0,"logprobs":false,
                 "tools":[],"tool_choice":"none","response_format":{"type":"text"},"logit_bias":{},"min_p":0,
                 "modalities":["text"],"whatever":[1,2,{"x":null}])"));
}

TEST(ChatRequestTest, ToolsAreReadFromTheBodysText) {
  const ChatRequest request =
      Parsed(Body(R"("tools":[{"type":"function","function":{"name":"f","x":1.0}}],"parallel_tool_calls":false)"));
  EXPECT_EQ(request.tools.functions, std::vector<std::string>{R"({"name": "f", "x": 1.0})"});
  EXPECT_TRUE(request.tools.may_call());
  EXPECT_TRUE(request.tools.is_single_call);
}

TEST(ChatRequestTest, TheLastMessageMayBeContinuedInEitherSpelling) {
  const auto body = [](const char* member, const char* fields) {
    return absl::StrCat(R"({"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a")",
                        member, "}]", fields, "}");
  };
  EXPECT_TRUE(Parsed(body(R"(,"prefix":true)", "")).messages.back().is_prefix);
  EXPECT_TRUE(
      Parsed(body("", R"(,"continue_final_message":true,"add_generation_prompt":false)")).messages.back().is_prefix);
  EXPECT_FALSE(
      Parsed(body("", R"(,"continue_final_message":false,"add_generation_prompt":true)")).messages.back().is_prefix);
}

TEST(ChatRequestTest, StopMayBeOneString) { EXPECT_EQ(Parsed(Body(R"("stop":"END")")).generation.stop.at(0), "END"); }

TEST(ChatRequestTest, NewNameOfMaxTokensMeansTheSame) {
  EXPECT_EQ(Parsed(Body(R"("max_completion_tokens":5)")).generation.max_new_tokens, 5);
  EXPECT_EQ(Parsed(Body(R"("max_completion_tokens":5,"max_tokens":5)")).generation.max_new_tokens, 5);
}

TEST(ChatRequestTest, TemperatureThatOverflowsLogitsIsArgmax) {
  EXPECT_EQ(Parsed(Body(R"("temperature":1e-9)")).generation.temperature, 0.0);
}

TEST(ChatRequestTest, TopKOfMinusOneAndZeroAreOff) {
  EXPECT_EQ(Parsed(Body(R"("top_k":-1)")).generation.top_k, 0);
  EXPECT_EQ(Parsed(Body(R"("top_k":0)")).generation.top_k, 0);
}

TEST(ChatRequestTest, SeedKeepsAllItsBits) {
  EXPECT_EQ(Parsed(Body(R"("seed":18446744073709551615)")).generation.seed, 18446744073709551615u);
  EXPECT_EQ(Parsed(Body(R"("seed":-1)")).generation.seed, 18446744073709551615u);
  EXPECT_EQ(Parsed(Body(R"("seed":0)")).generation.seed, 0u);
}

TEST(ChatRequestTest, EverySpellingOfTheThinkingSwitch) {
  const struct {
    const char* members;
    bool is_thinking;
  } kCases[] = {
      {R"("chat_template_kwargs":{"thinking":true})", true},
      {R"("chat_template_kwargs":{"enable_thinking":true})", true},
      {R"("chat_template_kwargs":{"thinking":false})", false},
      {R"("chat_template_kwargs":{"other":1})", false},
      {R"("thinking":{"type":"enabled"})", true},
      {R"("thinking":{"type":"disabled"},"reasoning_effort":"high")", false},
      {R"("reasoning_effort":"high")", true},
      {R"("reasoning_effort":"none")", false},
      {R"("reasoning_effort":"high","chat_template_kwargs":{"thinking":false})", false},
      {R"("reasoning_effort":"none","chat_template_kwargs":{"thinking":true})", true},
  };
  for (const auto& test_case : kCases) {
    EXPECT_EQ(Parsed(Body(test_case.members)).is_thinking, test_case.is_thinking) << test_case.members;
  }
}

TEST(ChatRequestTest, ContentIsAStringPartsOrNothing) {
  const ChatRequest request = Parsed(
      R"({"model":"m","messages":[
           {"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
           {"role":"user","content":null},{"role":"assistant"},{"role":"user","content":[]},
           {"role":"developer","content":"d"}]})");
  ASSERT_EQ(request.messages.size(), 5u);
  EXPECT_EQ(request.messages[0].content, "ab");
  EXPECT_EQ(request.messages[1].content, "");
  EXPECT_EQ(request.messages[2].content, "");
  EXPECT_EQ(request.messages[3].content, "");
  EXPECT_EQ(request.messages[4].role, ChatRole::kDeveloper);
}

TEST(ChatRequestTest, HistoryOfToolCallsIsRead) {
  const ChatRequest request = Parsed(
      R"({"model":"m","messages":[{"role":"user","content":"q"},
           {"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[
              {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\": 1.50}"}}]},
           {"role":"tool","tool_call_id":"c1","content":"out"}]})");
  const ChatMessage& assistant = request.messages.at(1);
  EXPECT_EQ(assistant.reasoning_content, "r");
  ASSERT_EQ(assistant.tool_calls.size(), 1u);
  EXPECT_EQ(assistant.tool_calls[0].id, "c1");
  EXPECT_EQ(assistant.tool_calls[0].name, "f");
  EXPECT_EQ(assistant.tool_calls[0].arguments, "{\"x\": 1.50}");
  EXPECT_EQ(request.messages.at(2).tool_call_id, "c1");
}

TEST(ChatRequestTest, EscapesAndSurrogatePairsBecomeUtf8) {
  const ChatRequest request = Parsed(R"({"model":"m","messages":[{"role":"user","content":"a\u00e9\ud83d\ude42\n"}]})");
  EXPECT_EQ(request.messages[0].content, "a\u00e9\U0001F642\n");
}

TEST(ChatRequestTest, RefusesWithTheFieldAndTheReason) {
  const std::vector<Refusal> kRefusals = {
      {"", "", "invalid JSON"},
      {"{", "", "invalid JSON"},
      {"nonsense", "", "invalid JSON"},
      {R"({"a":1}x)", "", "invalid JSON"},
      {R"([1])", "", "must be a JSON object, got an array"},
      {R"({"model":"m","messages":[{"role":"user","content":"\ud83d"}]})", "", "invalid JSON"},
      {R"({"model":"m","messages":[{"role":"user","content":"\ude42"}]})", "", "invalid JSON"},
      {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}", "", "invalid JSON"},
      {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\xc0\x80\"}]}", "", "invalid JSON"},
      {R"({"messages":[{"role":"user","content":"hi"}]})", "model", "is required"},
      {R"({"model":7,"messages":[{"role":"user","content":"hi"}]})", "model", "must be a string, got an integer"},
      {R"({"model":"m"})", "messages", "is required"},
      {R"({"model":"m","messages":[]})", "messages", "at least one"},
      {R"({"model":"m","messages":"hi"})", "messages", "must be an array, got a string"},
      {R"({"model":"m","messages":["hi"]})", "messages[0]", "must be an object"},
      {R"({"model":"m","messages":[{"content":"hi"}]})", "messages[0].role", "is required"},
      {R"({"model":"m","messages":[{"role":"robot","content":"hi"}]})", "messages[0].role", "got \"robot\""},
      {R"({"model":"m","messages":[{"role":"user","content":5}]})", "messages[0].content", "got an integer"},
      {R"({"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]})",
       "messages[0].content[0].type", "only \"text\" is supported, got \"image_url\""},
      {R"({"model":"m","messages":[{"role":"user","content":["x"]}]})", "messages[0].content[0]", "must be an object"},
      {R"({"model":"m","messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content[0].text",
       "is required"},
      {R"({"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]}]})",
       "messages[0].tool_calls[0].function.arguments", "must be a string, got an object"},
      {R"({"model":"m","messages":[{"role":"assistant","content":"x","prefix":1}]})", "messages[0].prefix",
       "must be a boolean"},
      {Body(R"("continue_final_message":true)"), "continue_final_message", "only an assistant's can be continued"},
      {Body(R"("add_generation_prompt":false)"), "add_generation_prompt", "only where the last message is continued"},
      {Body(R"("max_tokens":0)"), "max_tokens", "at least 1, got 0"},
      {Body(R"("max_tokens":-1)"), "max_tokens", "at least 1, got -1"},
      {Body(R"("max_tokens":1.5)"), "max_tokens", "must be an integer, got a number"},
      {Body(R"("max_tokens":"5")"), "max_tokens", "must be an integer, got a string"},
      {Body(R"("max_tokens":true)"), "max_tokens", "must be an integer, got a boolean"},
      {Body(R"("max_tokens":18446744073709551615)"), "max_tokens", "at most"},
      {Body(R"("max_completion_tokens":0)"), "max_completion_tokens", "at least 1"},
      {Body(R"("max_tokens":1,"max_completion_tokens":2)"), "max_tokens", "send one of them"},
      {Body(R"("temperature":-0.1)"), "temperature", "at least 0"},
      {Body(R"("temperature":2.5)"), "temperature", "at most 2"},
      {Body(R"("temperature":"hot")"), "temperature", "must be a number"},
      {Body(R"("temperature":1e999)"), "temperature", "finite"},
      {Body(R"("top_p":0)"), "top_p", "above 0"},
      {Body(R"("top_p":1.01)"), "top_p", "at most 1"},
      {Body(R"("top_k":-2)"), "top_k", "at least -1"},
      {Body(R"("seed":1.5)"), "seed", "must be an integer"},
      {Body(R"("stop":"")"), "stop", "must not be empty"},
      {Body(R"("stop":[1])"), "stop[0]", "must be a string"},
      {Body(R"("stop":{})"), "stop", "must be a string or an array"},
      {Body(R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])"), "stop",
       "at most 16 strings, got 17"},
      {Body("\"stop\":\"" + std::string(kStopBytesMax + 1, 'x') + "\""), "stop", "at most 16384 bytes in all"},
      {Body(R"("stop_token_ids":[-1])"), "stop_token_ids[0]", "must be a token id"},
      {Body(R"("stream":"yes")"), "stream", "must be a boolean"},
      {Body(R"("stream_options":{"include_usage":true})"), "stream_options", "only where stream is true"},
      {Body(R"("stream":true,"stream_options":{"include_usage":1})"), "stream_options.include_usage",
       "must be a boolean"},
      {Body(R"("chat_template_kwargs":{"thinking":"yes"})"), "chat_template_kwargs.thinking", "must be a boolean"},
      {Body(R"("chat_template_kwargs":{"thinking":true,"enable_thinking":false})"), "chat_template_kwargs",
       "contradict"},
      {Body(R"("reasoning_effort":"enormous")"), "reasoning_effort", "got \"enormous\""},
      {Body(R"("n":0)"), "n", "at least 1, got 0"},
      {Body(R"("n":1.5)"), "n", "must be an integer"},
      {Body(R"("n":100000)"), "n", "at most 1024"},
      {Body(R"("best_of":2)"), "best_of", "only 1 may be sent"},
      {Body(R"("logprobs":3)"), "logprobs", "must be a boolean, got an integer"},
      {Body(R"("top_logprobs":3)"), "top_logprobs", "only where logprobs is true"},
      {Body(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", "at most 20"},
      {Body(R"("logprobs":true,"top_logprobs":-1)"), "top_logprobs", "at least 0"},
      {Body(R"("min_p":1.1)"), "min_p", "at most 1"},
      {Body(R"("repetition_penalty":0)"), "repetition_penalty", "above 0"},
      {Body(R"("repetition_penalty":1e-300)"), "repetition_penalty", "above 0"},
      {Body(R"("repetition_penalty":2.1)"), "repetition_penalty", "at most 2"},
      {Body(R"("frequency_penalty":-2.1)"), "frequency_penalty", "at least -2"},
      {Body(R"("presence_penalty":"x")"), "presence_penalty", "must be a number"},
      {Body(R"("min_tokens":-1)"), "min_tokens", "at least 0"},
      {Body(R"("min_tokens":6,"max_tokens":5)"), "min_tokens", "is 6, above max_tokens, 5"},
      {Body(R"("logit_bias":[1])"), "logit_bias", "must be an object"},
      {Body(R"("logit_bias":{"x":1})"), "logit_bias", "keys must be token ids, got \"x\""},
      {Body(R"("logit_bias":{"-1":1})"), "logit_bias", "keys must be token ids"},
      {Body(R"("logit_bias":{"05":1})"), "logit_bias", "keys must be token ids"},
      {Body(R"("logit_bias":{"99999999999":1})"), "logit_bias", "keys must be token ids"},
      {Body(R"("logit_bias":{"5":true})"), "logit_bias[5]", "must be a number, got a boolean"},
      {Body(R"("logit_bias":{"5":100.5})"), "logit_bias[5]", "from -100 to 100"},
      {Body(R"("logit_bias":{"5":-1e999})"), "logit_bias[5]", "from -100 to 100"},
      {Body(R"("tools":[{"type":"function","function":{}}])"), "tools[0].function.name", "is required"},
      {Body(R"("tool_choice":"required")"), "tool_choice", "has no tools"},
      {Body(R"("response_format":{"type":"yaml"})"), "response_format.type", "must be text, json_object"},
  };
  ExpectRefused(kRefusals, [](const std::string& body) { return ParseChatRequest(body); });
}

TEST(ChatRequestTest, LogitBiasIsBounded) {
  const auto biases = [](size_t count) {
    std::string members;
    for (size_t i = 0; i < count; ++i) members += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
    return Body("\"logit_bias\":{" + members + "}");
  };
  EXPECT_EQ(Parsed(biases(kLogitBiasMax)).generation.logit_bias.size(), kLogitBiasMax);
  EXPECT_FALSE(ParseChatRequest(biases(kLogitBiasMax + 1)).ok());
}

TEST(ChatRequestTest, NestingIsBounded) {
  const auto nested = [](size_t depth) { return Body("\"x\":" + std::string(depth, '[') + std::string(depth, ']')); };
  Parsed(nested(kJsonDepthMax - 1));  // the request's own braces are the first level
  EXPECT_FALSE(ParseChatRequest(nested(kJsonDepthMax)).ok());
  EXPECT_FALSE(ParseChatRequest(nested(1 << 20)).ok()) << "and cheap to refuse";
}

TEST(ChatRequestTest, TreeThatOutgrowsItsBodyIsRefused) {
  std::string values;
  for (int i = 0; i < 4'000'000; ++i) values += "{},";
  const absl::Status status = ParseChatRequest(Body("\"x\":[" + values + "{}]")).status();
  EXPECT_EQ(status.message(), "body: has too many values for its size");
  const std::string text(8 << 20, 'x');
  EXPECT_EQ(Parsed(R"({"model":"m","messages":[{"role":"user","content":")" + text + R"("}]})").messages[0].content,
            text)
      << "a long text is no such tree";
}

TEST(ChatRequestTest, EveryPrefixOfARequestIsRefused) {
  const std::string whole = Body(R"("stop":["\ud83d\ude42","b"],"temperature":0.25)");
  Parsed(whole);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ParseChatRequest(whole.substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace tandem::router

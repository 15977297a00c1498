// Response bodies and stream frames, read back by an independent JSON parser.
#include "router/openai/chat_response.h"

#include <string>
#include <utility>
#include <vector>

#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/openai/models_response.h"
#include "router/testing/byte_tokenizer.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

const AnswerIdentity kIdentity = {"chatcmpl-1", 1700000000, "deep\"seek"};

const ByteTokenizer& Tokens() {
  static const ByteTokenizer* const tokenizer = new ByteTokenizer;
  return *tokenizer;
}
ChatFormat Format(const ChatFormat::Options& options) { return ChatFormat(kIdentity, options, &Tokens()); }

WholeChoice Choice(const std::string& content, const std::string& reasoning = "", ChoiceEnd end = {}) {
  WholeChoice choice;
  choice.text.content = content;
  choice.text.reasoning = reasoning;
  choice.end = std::move(end);
  return choice;
}
ChoiceDelta Text(const std::string& content, const std::string& reasoning = "") {
  ChoiceDelta delta;
  delta.text.content = content;
  delta.text.reasoning = reasoning;
  return delta;
}
ChoiceDelta End(ChoiceEnd end) {
  ChoiceDelta delta;
  delta.end = std::move(end);
  return delta;
}

// The events' data, in order.
std::vector<std::string> Events(const std::string& frames) {
  std::vector<std::string> events;
  size_t begin = 0;
  while (begin < frames.size()) {
    const size_t end = frames.find("\n\n", begin);
    EXPECT_NE(end, std::string::npos) << "an event without its end";
    const std::string event = frames.substr(begin, end - begin);
    EXPECT_EQ(event.find('\n'), std::string::npos) << "an event of several lines";
    if (event.rfind("data: ", 0) == 0) events.push_back(event.substr(6));
    begin = end + 2;
  }
  return events;
}

TEST(ChatResponseTest, WholeAnswerHasTheApisShape) {
  const WholeChoice choice = Choice("4\n", "", {AnswerFinish::kStop, TokenId{1}});
  EXPECT_EQ(json::parse(Format({}).WholeBody({choice}, {.prompt_tokens = 10, .completion_tokens = 3})), json::parse(R"({
      "id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"deep\"seek",
      "choices":[{"index":0,"message":{"role":"assistant","content":"4\n"},"logprobs":null,"finish_reason":"stop",
                  "matched_stop":1}],
      "usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,
        "prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0},
        "reasoning_tokens":0}})"));
}

TEST(ChatResponseTest, ReasoningStandsBesideTheContent) {
  const WholeChoice choice = Choice("4", "2+2", {AnswerFinish::kLength, {}});
  const json::value body =
      json::parse(Format({.is_thinking = true})
                      .WholeBody({choice}, {.prompt_tokens = 10, .completion_tokens = 3, .reasoning_tokens = 2}));
  const json::value& shown = body.at("choices").at(0);
  EXPECT_EQ(shown.at("message").at("reasoning_content"), "2+2");
  EXPECT_EQ(shown.at("message").at("content"), "4");
  EXPECT_EQ(shown.at("finish_reason"), "length");
  EXPECT_TRUE(shown.at("matched_stop").is_null());
  EXPECT_EQ(body.at("usage").at("completion_tokens_details").at("reasoning_tokens"), 2);
}

TEST(ChatResponseTest, EveryChoiceHasItsIndexAndItsOwnLogprobs) {
  WholeChoice first = Choice("a", "", {AnswerFinish::kStop, std::string("EN\"D")});
  first.logprobs.push_back({'a', -0.5f, {{'a', -0.5f}, {'b', -1.5f}}, 0});
  const json::value body = json::parse(Format({.has_logprobs = true}).WholeBody({first, Choice("")}, {}));
  ASSERT_EQ(body.at("choices").as_array().size(), 2u);
  EXPECT_EQ(body.at("choices").at(0).at("matched_stop"), "EN\"D");
  EXPECT_EQ(body.at("choices").at(0).at("logprobs"), json::parse(R"({"content":[
      {"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},
                                                               {"token":"b","logprob":-1.5,"bytes":[98]}]}],
      "refusal":null})"));
  EXPECT_EQ(body.at("choices").at(1).at("index"), 1);
  EXPECT_EQ(body.at("choices").at(1).at("logprobs"), json::parse(R"({"content":[],"refusal":null})"));
}

TEST(ChatResponseTest, StreamIsOneValidEventPerFrame) {
  ChatFormat format = Format({.has_usage_field = true});
  std::string out;
  format.AppendOpening(out, 3);
  format.AppendDelta(out, 3, Text("", "think\n"));
  format.AppendDelta(out, 3, Text("say \"hi\" \U0001F642"));
  format.AppendDelta(out, 3, End({AnswerFinish::kLength, {}}));
  format.AppendUsage(out, {.prompt_tokens = 7, .completion_tokens = 5, .reasoning_tokens = 3});
  AppendDoneEvent(out);
  const std::vector<std::string> events = Events(out);
  ASSERT_EQ(events.size(), 6u);
  for (int i = 0; i < 5; ++i) {
    const json::value chunk = json::parse(events[i]);
    EXPECT_EQ(chunk.at("id"), "chatcmpl-1");
    EXPECT_EQ(chunk.at("object"), "chat.completion.chunk");
    EXPECT_EQ(chunk.at("created"), 1700000000);
    EXPECT_EQ(chunk.at("model"), "deep\"seek");
    if (i < 4) {
      EXPECT_TRUE(chunk.at("usage").is_null());
      EXPECT_EQ(chunk.at("choices").at(0).at("index"), 3);
    }
  }
  EXPECT_EQ(
      json::parse(events[0]).at("choices"),
      json::parse(R"([{"index":3,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])"));
  EXPECT_EQ(json::parse(events[1]).at("choices").at(0).at("delta"), json::parse(R"({"reasoning_content":"think\n"})"));
  EXPECT_EQ(json::parse(events[2]).at("choices").at(0).at("delta").at("content"), "say \"hi\" \U0001F642");
  EXPECT_EQ(json::parse(events[3]).at("choices"),
            json::parse(R"([{"index":3,"delta":{},"logprobs":null,"finish_reason":"length","matched_stop":null}])"));
  EXPECT_EQ(json::parse(events[4]).at("choices"), json::array());
  EXPECT_EQ(json::parse(events[4]).at("usage"), json::parse(
                                                    R"({"prompt_tokens":7,"completion_tokens":5,"total_tokens":12,
          "prompt_tokens_details":{"cached_tokens":0},
          "completion_tokens_details":{"reasoning_tokens":3},"reasoning_tokens":3})"));
  EXPECT_EQ(events[5], "[DONE]");
}

TEST(ChatResponseTest, LogprobsOfADeltaComeOnceWithItsFirstEvent) {
  ChatFormat format = Format({.has_logprobs = true});
  ChoiceDelta delta = Text("c", "r");
  delta.logprobs = {{'r', -1, {}, 0}, {'c', -2, {}, 1}};
  delta.end = ChoiceEnd();
  std::string out;
  format.AppendDelta(out, 0, delta);
  ChoiceDelta end = End({});
  end.logprobs = {{'e', -3, {}, 2}};
  format.AppendDelta(out, 0, end);
  const std::vector<std::string> events = Events(out);
  ASSERT_EQ(events.size(), 4u);
  const auto logprobs = [&](int i) { return json::parse(events[i]).at("choices").at(0).at("logprobs"); };
  EXPECT_EQ(logprobs(0).at("content").as_array().size(), 2u);
  EXPECT_TRUE(logprobs(1).is_null());
  EXPECT_TRUE(logprobs(2).is_null());
  EXPECT_EQ(logprobs(3).at("content").at(0).at("token"), "e") << "what has no text comes with the end";
}

TEST(ChatResponseTest, CallsOfAWholeAnswerHaveTheApisShape) {
  WholeChoice choice = Choice("", "", {AnswerFinish::kToolCalls, TokenId{1}});
  choice.text.tool_calls = {{0, "get_weather", "{\"location\": \"Beijing\"}"}, {1, "f", "{}"}};
  const std::string body = Format({}).WholeBody({Choice("a"), choice}, {});
  EXPECT_EQ(json::parse(body).at("choices").at(1),
            json::parse(R"({"index":1,"message":{"role":"assistant","content":null,
      "tool_calls":[{"id":"call_100010000","type":"function",
                     "function":{"name":"get_weather","arguments":"{\"location\": \"Beijing\"}"}},
                    {"id":"call_100010001","type":"function","function":{"name":"f","arguments":"{}"}}]},
      "logprobs":null,"finish_reason":"tool_calls","matched_stop":1})"));
  choice.text.content = "Let me see.";
  EXPECT_EQ(json::parse(Format({}).WholeBody({choice}, {})).at("choices").at(0).at("message").at("content"),
            "Let me see.");
}

TEST(ChatResponseTest, CallsOfAStreamBeginWithTheirIdAndName) {
  std::string frames;
  ChoiceDelta delta = Text("a");
  delta.text.tool_calls = {{0, "f", ""}};
  Format({}).AppendDelta(frames, 0, delta);
  delta = {};
  delta.text.tool_calls = {{0, "", "{\"x\": 1"}, {1, "g", "{}"}};
  Format({}).AppendDelta(frames, 0, delta);
  Format({}).AppendDelta(frames, 0, End({AnswerFinish::kToolCalls, {}}));
  const std::vector<std::string> events = Events(frames);
  ASSERT_EQ(events.size(), 4u);
  const auto delta_of = [&events](size_t event) { return json::parse(events[event]).at("choices").at(0).at("delta"); };
  EXPECT_EQ(delta_of(0), json::parse(R"({"content":"a"})"));
  EXPECT_EQ(delta_of(1), json::parse(R"({"tool_calls":[{"index":0,"id":"call_100000000","type":"function",
                                                          "function":{"name":"f","arguments":""}}]})"));
  EXPECT_EQ(delta_of(2), json::parse(R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"x\": 1"}},
      {"index":1,"id":"call_100000001","type":"function","function":{"name":"g","arguments":"{}"}}]})"));
  EXPECT_EQ(json::parse(events[3]).at("choices").at(0).at("finish_reason"), "tool_calls");
}

TEST(ChatResponseTest, StreamWithoutUsageSaysNothingOfIt) {
  ChatFormat format = Format({});
  std::string out;
  format.AppendOpening(out, 0);
  format.AppendDelta(out, 0, Text("x"));
  format.AppendDelta(out, 0, End({}));
  for (const std::string& event : Events(out)) EXPECT_FALSE(json::parse(event).as_object().contains("usage"));
}

TEST(ChatResponseTest, KeepaliveIsACommentAndNoEvent) {
  std::string out;
  AppendKeepaliveEvent(out);
  EXPECT_TRUE(Events(out).empty());
  EXPECT_EQ(out.front(), ':');
}

TEST(ModelsResponseTest, ListHoldsTheOneModel) {
  const ModelCard card = {"deepseek-v3.2", 1700000000, 163840};
  const json::value list = json::parse(ModelListBody(card));
  EXPECT_EQ(list.at("object"), "list");
  ASSERT_EQ(list.at("data").as_array().size(), 1u);
  EXPECT_EQ(list.at("data").at(0), json::parse(ModelBody(card)));
  EXPECT_EQ(list.at("data").at(0).at("id"), "deepseek-v3.2");
  EXPECT_EQ(list.at("data").at(0).at("object"), "model");
  EXPECT_EQ(list.at("data").at(0).at("max_model_len"), 163840);
}

}  // namespace
}  // namespace tandem::router

// Response bodies and stream frames, read back by an independent JSON parser.
#include "router/openai/chat_response.h"

#include <string>
#include <vector>

#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/openai/models_response.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

const ChatIdentity kIdentity = {"chatcmpl-1", 1700000000, "deep\"seek"};

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
  const ChatAnswer answer = {"4\n", std::nullopt, AnswerFinish::kStop, {10, 3, std::nullopt}};
  EXPECT_EQ(json::parse(ChatCompletionBody(kIdentity, answer)), json::parse(R"({
      "id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"deep\"seek",
      "choices":[{"index":0,"message":{"role":"assistant","content":"4\n"},"logprobs":null,"finish_reason":"stop"}],
      "usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}})"));
}

TEST(ChatResponseTest, ReasoningStandsBesideTheContent) {
  const ChatAnswer answer = {"4", "2+2", AnswerFinish::kLength, {10, 3, 2}};
  const json::value body = json::parse(ChatCompletionBody(kIdentity, answer));
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("reasoning_content"), "2+2");
  EXPECT_EQ(choice.at("message").at("content"), "4");
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_EQ(body.at("usage").at("completion_tokens_details").at("reasoning_tokens"), 2);
}

TEST(ChatResponseTest, StreamIsOneValidEventPerFrame) {
  const ChatStreamFrames frames(kIdentity, /*has_usage_field=*/true);
  std::string out;
  frames.AppendRole(out);
  frames.AppendReasoning(out, "think\n");
  frames.AppendContent(out, "say \"hi\" \U0001F642");
  frames.AppendFinish(out, AnswerFinish::kLength);
  frames.AppendUsage(out, {7, 5, 3});
  ChatStreamFrames::AppendDone(out);
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
    }
  }
  EXPECT_EQ(
      json::parse(events[0]).at("choices"),
      json::parse(R"([{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}])"));
  EXPECT_EQ(json::parse(events[1]).at("choices").at(0).at("delta"), json::parse(R"({"reasoning_content":"think\n"})"));
  EXPECT_EQ(json::parse(events[2]).at("choices").at(0).at("delta").at("content"), "say \"hi\" \U0001F642");
  EXPECT_EQ(json::parse(events[3]).at("choices"),
            json::parse(R"([{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}])"));
  EXPECT_EQ(json::parse(events[4]).at("choices"), json::array());
  EXPECT_EQ(json::parse(events[4]).at("usage"), json::parse(
                                                    R"({"prompt_tokens":7,"completion_tokens":5,"total_tokens":12,
          "completion_tokens_details":{"reasoning_tokens":3}})"));
  EXPECT_EQ(events[5], "[DONE]");
}

TEST(ChatResponseTest, StreamWithoutUsageSaysNothingOfIt) {
  const ChatStreamFrames frames(kIdentity, /*has_usage_field=*/false);
  std::string out;
  frames.AppendRole(out);
  frames.AppendContent(out, "x");
  frames.AppendFinish(out, AnswerFinish::kStop);
  for (const std::string& event : Events(out)) EXPECT_FALSE(json::parse(event).as_object().contains("usage"));
}

TEST(ChatResponseTest, KeepaliveIsACommentAndNoEvent) {
  std::string out;
  ChatStreamFrames::AppendKeepalive(out);
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

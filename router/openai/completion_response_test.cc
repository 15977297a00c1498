// Bodies and stream events of completions, read back by an independent JSON parser.
#include "router/openai/completion_response.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/testing/byte_tokenizer.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

CompletionFormat Format(CompletionFormat::Options options) {
  static const ByteTokenizer* const tokenizer = new ByteTokenizer;
  return CompletionFormat({"cmpl-1", 1700000000, "m"}, std::move(options), tokenizer);
}
WholeChoice Choice(const std::string& text, ChoiceEnd end = {}) {
  WholeChoice choice;
  choice.text.content = text;
  choice.end = std::move(end);
  return choice;
}
ChoiceDelta Text(const std::string& text) {
  ChoiceDelta delta;
  delta.text.content = text;
  return delta;
}
std::vector<json::value> Events(const std::string& frames) {
  std::vector<json::value> events;
  for (absl::string_view event : absl::StrSplit(frames, "\n\n", absl::SkipEmpty())) {
    EXPECT_TRUE(absl::ConsumePrefix(&event, "data: ")) << event;
    events.push_back(json::parse(std::string(event)));
  }
  return events;
}

TEST(CompletionResponseTest, WholeAnswerHasTheApisShape) {
  EXPECT_EQ(json::parse(Format({}).WholeBody({Choice("4\n", {AnswerFinish::kLength, {}})},
                                             {.prompt_tokens = 10, .completion_tokens = 3})),
            json::parse(R"({"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m",
      "choices":[{"index":0,"text":"4\n","logprobs":null,"finish_reason":"length","matched_stop":null}],
      "usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13}})"));
}

TEST(CompletionResponseTest, EachPromptIsEchoedByItsChoices) {
  CompletionFormat format = Format({.echoes = {"\"p\" ", "q "}, .choices_per_prompt = 2});
  const json::value body = json::parse(format.WholeBody({Choice("a"), Choice("b"), Choice("c"), Choice("d")}, {}));
  const char* const kTexts[] = {"\"p\" a", "\"p\" b", "q c", "q d"};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(body.at("choices").at(i).at("text"), kTexts[i]);
    EXPECT_EQ(body.at("choices").at(i).at("index"), i);
  }
  std::string out;
  format.AppendOpening(out, 3);
  format.AppendDelta(out, 3, Text("d"));
  const std::vector<json::value> events = Events(out);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].at("choices").at(0).at("text"), "q ");
  EXPECT_EQ(events[1].at("choices").at(0).at("text"), "d");
}

TEST(CompletionResponseTest, WithoutEchoAStreamHasNoOpening) {
  std::string out;
  Format({}).AppendOpening(out, 0);
  EXPECT_EQ(out, "");
}

TEST(CompletionResponseTest, StreamHasTextEndAndUsage) {
  CompletionFormat format = Format({.has_usage_field = true, .has_logprobs = true});
  ChoiceDelta delta = Text("a");
  delta.logprobs = {{'a', -1, {}, 0}};
  std::string out;
  format.AppendDelta(out, 1, delta);
  ChoiceDelta end;
  end.end = ChoiceEnd{AnswerFinish::kStop, std::string("x")};
  format.AppendDelta(out, 1, end);
  format.AppendUsage(out, {.prompt_tokens = 1, .completion_tokens = 2});
  const std::vector<json::value> events = Events(out);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].at("object"), "text_completion");
  EXPECT_EQ(events[0].at("choices"), json::parse(R"([{"index":1,"text":"a","logprobs":{"tokens":["a"],
      "token_logprobs":[-1],"top_logprobs":[{"a":-1}],"text_offset":[0]},"finish_reason":null}])"));
  EXPECT_TRUE(events[0].at("usage").is_null());
  EXPECT_EQ(events[1].at("choices"),
            json::parse(R"([{"index":1,"text":"","logprobs":null,"finish_reason":"stop","matched_stop":"x"}])"));
  EXPECT_EQ(events[2].at("choices"), json::array());
  EXPECT_EQ(events[2].at("usage").at("total_tokens"), 3);
}

}  // namespace
}  // namespace tandem::router

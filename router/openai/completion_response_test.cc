// Bodies and stream events of completions, read back by an independent JSON parser.
#include "router/openai/completion_response.h"

#include <memory>
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
using B = ByteTokenizer;

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
      "usage":{"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,
        "prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0},
        "reasoning_tokens":0}})"));
}

TEST(CompletionResponseTest, EachPromptIsEchoedByItsChoices) {
  CompletionFormat format = Format({.echoes = {{"\"p\" "}, {"q "}}, .choices_per_prompt = 2});
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

TEST(CompletionResponseTest, AnEchoWithLogprobsBeginsWithThePrompts) {
  CompletionFormat::Options options = {.has_logprobs = true, .echoes = {{"hé", 2}}, .choices_per_prompt = 2};
  options.echoes[0].tokens = {{B::kBos, 0, {}, 0}, {'h', 0, {}, 0}, {'e', 0, {}, 1}};
  const auto prompt =
      std::make_shared<const PromptLogprobs>(PromptLogprobs{{-2, -3}, {{{'x', -1}, {'h', -2}}, {{'e', -3}}}});
  WholeChoice choice = Choice("a");
  choice.logprobs = {{'a', -1, {{'a', -1}}, 0}};
  choice.prompt_logprobs = prompt;
  const json::value expected = json::parse(R"({"tokens":["<｜begin▁of▁sentence｜>","h","e","a"],
      "token_logprobs":[null,-2,-3,-1],"top_logprobs":[null,{"x":-1,"h":-2},{"e":-3},{"a":-1}],
      "text_offset":[0,0,1,2]})");
  const json::value body = json::parse(Format(options).WholeBody({choice, choice}, {}));
  EXPECT_EQ(body.at("choices").at(1).at("text"), "héa");
  EXPECT_EQ(body.at("choices").at(1).at("logprobs"), expected);

  CompletionFormat format = Format(options);
  std::string out;
  format.AppendOpening(out, 1);
  EXPECT_EQ(out, "") << "the echo waits for its logprobs";
  ChoiceDelta delta = Text("a");
  delta.logprobs = choice.logprobs;
  delta.prompt_logprobs = prompt;
  format.AppendDelta(out, 1, delta);
  const std::vector<json::value> events = Events(out);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].at("choices").at(0).at("text"), "hé");
  EXPECT_EQ(events[0].at("choices").at(0).at("logprobs").at("token_logprobs"), json::parse("[null,-2,-3]"));
  EXPECT_EQ(events[1].at("choices").at(0).at("text"), "a");
  EXPECT_EQ(events[1].at("choices").at(0).at("logprobs").at("text_offset"), json::parse("[2]"));
}

TEST(CompletionResponseTest, TheLikeliestOfMoreChoicesAreReturned) {
  std::vector<WholeChoice> choices = {Choice("a"), Choice("b"), Choice("c"), Choice("d"), Choice("e"), Choice("f")};
  const float kLogprobs[] = {-3, -1, -2, -1, -1, -5};
  for (int i = 0; i < 6; ++i) choices[i].logprobs = {{'x', kLogprobs[i], {}, 0}, {'y', kLogprobs[i], {}, 1}};
  choices[0].logprobs.pop_back();  // the mean counts, not the sum
  const json::value body =
      json::parse(Format({.choices_per_prompt = 3, .num_returned = 2}).WholeBody(choices, {.completion_tokens = 11}));
  ASSERT_EQ(body.at("choices").as_array().size(), 4u);
  const char* const kTexts[] = {"b", "c", "d", "e"};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(body.at("choices").at(i).at("text"), kTexts[i]);
    EXPECT_EQ(body.at("choices").at(i).at("index"), i);
    EXPECT_TRUE(body.at("choices").at(i).at("logprobs").is_null());
  }
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 11) << "of all that were drawn";
}

}  // namespace
}  // namespace tandem::router

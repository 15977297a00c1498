// Bodies and stream events of /generate, read back by an independent JSON parser.
#include "router/openai/generate_response.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/testing/byte_tokenizer.h"

namespace tandem::router {
namespace {

namespace json = boost::json;
using B = ByteTokenizer;

GenerateFormat Format(GenerateFormat::Options options) {
  static const ByteTokenizer* const tokenizer = new ByteTokenizer;
  return GenerateFormat(std::move(options), tokenizer);
}
GenerateFormat::Options One() {
  GenerateFormat::Options options;
  options.prompts = {{"gnt-1", 5}};
  return options;
}
ChoiceDelta Delta(const std::string& text, std::vector<TokenId> tokens) {
  ChoiceDelta delta;
  delta.text.content = text;
  delta.tokens = std::move(tokens);
  return delta;
}
json::value Event(GenerateFormat& format, int index, const ChoiceDelta& delta) {
  std::string out;
  format.AppendDelta(out, index, delta);
  EXPECT_EQ(out.substr(0, 6), "data: ");
  EXPECT_EQ(out.substr(out.size() - 2), "\n\n");
  EXPECT_EQ(out.find('\n'), out.size() - 2) << "one line an event";
  return json::parse(out.substr(6));
}

TEST(GenerateResponseTest, OnePromptWithOneChoiceIsAnObject) {
  WholeChoice choice;
  choice.text.content = "a\"b";
  choice.tokens = {'a', '"', 'b', B::kEos};
  choice.end = {AnswerFinish::kStop, B::kEos, absl::Milliseconds(1500)};
  EXPECT_EQ(json::parse(Format(One()).WholeBody({choice}, {})),
            json::parse(R"({"text":"a\"b","output_ids":[97,34,98,257],"meta_info":{"id":"gnt-1",
                "finish_reason":{"type":"stop","matched":257},"prompt_tokens":5,"completion_tokens":4,
                "cached_tokens":0,"e2e_latency":1.5}})"));
}

TEST(GenerateResponseTest, CachedTokensStandInEveryEventFromTheirFirstOn) {
  GenerateFormat format(Format(One()));
  ChoiceDelta first = Delta("a", {'a'});
  first.num_cached_tokens = 4;
  EXPECT_EQ(Event(format, 0, first).at("meta_info").at("cached_tokens"), 4);
  EXPECT_EQ(Event(format, 0, Delta("b", {'b'})).at("meta_info").at("cached_tokens"), 4);
  WholeChoice choice;
  choice.num_cached_tokens = 3;
  EXPECT_EQ(json::parse(Format(One()).WholeBody({choice}, {})).at("meta_info").at("cached_tokens"), 3);
}

TEST(GenerateResponseTest, WhatDraftsBroughtIsSaidInSglangsNames) {
  WholeChoice choice;
  choice.end.drafts = {.windows = 8, .drafted = 24, .accepted = 18};
  const json::value meta = json::parse(Format(One()).WholeBody({choice}, {})).at("meta_info");
  EXPECT_EQ(meta.at("spec_verify_ct").as_int64(), 8);
  EXPECT_EQ(meta.at("spec_accept_length").to_number<double>(), 3.25);
  EXPECT_EQ(meta.at("spec_accept_rate").to_number<double>(), 0.75);
  EXPECT_EQ(meta.at("spec_num_correct_drafts").as_int64(), 18);
  choice.end.drafts = {.windows = 2};
  EXPECT_EQ(
      json::parse(Format(One()).WholeBody({choice}, {})).at("meta_info").at("spec_accept_rate").to_number<double>(), 0);
}

TEST(GenerateResponseTest, SeveralAreAnArrayByPromptAndChoice) {
  GenerateFormat::Options options;
  options.prompts = {{"x", 1}, {"y", 2}};
  options.choices_per_prompt = 2;
  options.is_list = true;
  std::vector<WholeChoice> choices(4);
  choices[3].end = {AnswerFinish::kStop, std::string("END")};
  const json::value body = json::parse(Format(options).WholeBody(choices, {}));
  ASSERT_EQ(body.as_array().size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(body.at(i).at("index").as_int64(), i);
    EXPECT_EQ(body.at(i).at("meta_info").at("id").as_string(), i < 2 ? "x" : "y");
    EXPECT_EQ(body.at(i).at("meta_info").at("prompt_tokens").as_int64(), i < 2 ? 1 : 2);
  }
  EXPECT_EQ(body.at(3).at("meta_info").at("finish_reason"), json::parse(R"({"type":"stop","matched":"END"})"));
  options = One();
  options.is_list = true;
  EXPECT_TRUE(json::parse(Format(options).WholeBody(std::vector<WholeChoice>(1), {})).is_array());
}

TEST(GenerateResponseTest, EventsAreCumulativeAndTheLastIsTheWholeAnswer) {
  GenerateFormat::Options options = One();
  options.has_logprobs = options.has_top_logprobs = options.has_logprob_texts = true;
  GenerateFormat format = Format(options);
  ChoiceDelta first = Delta("h\n", {'h', '\n'});
  first.logprobs = {{'h', -1, {{'h', -1}, {'x', -2}}, 0}, {'\n', -0.5, {{'\n', -0.5}, {'y', -3}}, 1}};
  const json::value event = Event(format, 0, first);
  EXPECT_EQ(event.at("text").as_string(), "h\n");
  EXPECT_TRUE(event.at("meta_info").at("finish_reason").is_null());
  EXPECT_EQ(event.at("meta_info").at("completion_tokens").as_int64(), 2);
  EXPECT_EQ(event.at("meta_info").at("output_token_logprobs"), json::parse(R"([[-1,104,"h"],[-0.5,10,"\n"]])"));
  EXPECT_EQ(event.at("meta_info").at("output_top_logprobs"),
            json::parse(R"([[[-1,104,"h"],[-2,120,"x"]],[[-0.5,10,"\n"],[-3,121,"y"]]])"));
  EXPECT_FALSE(event.as_object().contains("index"));

  ChoiceDelta last = Delta("i", {'i'});
  last.logprobs = {{'i', -4, {{'z', -0.1f}, {'i', -4}}, 2}};
  last.end = {AnswerFinish::kLength, {}, absl::Seconds(2)};
  const json::value end = Event(format, 0, last);
  EXPECT_EQ(end.at("meta_info").at("finish_reason"), json::parse(R"({"type":"length","length":3})"));

  WholeChoice whole;
  whole.text.content = "h\ni";
  whole.tokens = {'h', '\n', 'i'};
  whole.logprobs = {first.logprobs[0], first.logprobs[1], last.logprobs[0]};
  whole.end = *last.end;
  EXPECT_EQ(end, json::parse(Format(options).WholeBody({whole}, {})));
}

// Else an answer of N tokens would be N * N / 2 tokens on the wire.
TEST(GenerateResponseTest, ALongStreamIsNotTheSquareOfItsAnswer) {
  GenerateFormat format = Format(One());
  const std::string piece(1000, 'x');
  size_t num_bytes = 0;
  size_t num_silent = 0;
  std::string last;
  constexpr int kPieces = 4000;
  for (int i = 0; i < kPieces; ++i) {
    ChoiceDelta delta = Delta(piece, {'x'});
    if (i + 1 == kPieces) delta.end = ChoiceEnd{AnswerFinish::kLength, {}, absl::Seconds(1)};
    std::string event;
    format.AppendDelta(event, 0, delta);
    num_bytes += event.size();
    num_silent += event.empty() ? 1 : 0;
    EXPECT_FALSE(event.empty() && i < 250) << "short answers say every piece: " << i;
    last = std::move(event);
  }
  EXPECT_GT(num_silent, size_t{kPieces} / 2);
  EXPECT_LT(num_bytes, 300 * piece.size() * kPieces) << "it would be 2,000 times the answer";
  const json::value end = json::parse(last.substr(sizeof("data: ") - 1));
  EXPECT_EQ(end.at("text").as_string().size(), piece.size() * kPieces) << "the last event is the whole answer";
}

TEST(GenerateResponseTest, ChoicesOfAStreamAreKeptApart) {
  GenerateFormat::Options options = One();
  options.choices_per_prompt = 2;
  GenerateFormat format = Format(options);
  Event(format, 1, Delta("b", {'b'}));
  EXPECT_EQ(Event(format, 0, Delta("a", {'a'})).at("text").as_string(), "a");
  const json::value second = Event(format, 1, Delta("c", {'c'}));
  EXPECT_EQ(second.at("text").as_string(), "bc");
  EXPECT_EQ(second.at("output_ids"), json::parse("[98,99]"));
  EXPECT_EQ(second.at("index").as_int64(), 1);
}

TEST(GenerateResponseTest, AnAbortSaysSo) {
  GenerateFormat format = Format(One());
  ChoiceDelta delta;
  delta.end = {AnswerFinish::kAbort, {}};
  EXPECT_EQ(Event(format, 0, delta).at("meta_info").at("finish_reason").at("type").as_string(), "abort");
}

TEST(GenerateResponseTest, LogprobsWithoutTextsHaveNull) {
  GenerateFormat::Options options = One();
  options.has_logprobs = true;
  GenerateFormat format = Format(options);
  ChoiceDelta delta = Delta("h", {'h'});
  delta.logprobs = {{'h', -1, {}, 0}};
  const json::value meta = Event(format, 0, delta).at("meta_info");
  EXPECT_EQ(meta.at("output_token_logprobs"), json::parse("[[-1,104,null]]"));
  EXPECT_FALSE(meta.as_object().contains("output_top_logprobs"));
}

TEST(GenerateResponseTest, ThePromptsLogprobsComeWithTheFirstNewsAndStay) {
  GenerateFormat::Options options = One();
  options.has_logprobs = options.has_top_logprobs = true;
  options.prompts[0].logprob_tokens = {'p', 'q'};
  GenerateFormat format = Format(options);
  ChoiceDelta first = Delta("h", {'h'});
  first.prompt_logprobs = std::make_shared<const PromptLogprobs>(PromptLogprobs{{-2}, {{{'x', -1}}}});
  Event(format, 0, first);
  const json::value meta = Event(format, 0, Delta("i", {'i'})).at("meta_info");
  EXPECT_EQ(meta.at("input_token_logprobs"), json::parse("[[null,112,null],[-2,113,null]]"));
  EXPECT_EQ(meta.at("input_top_logprobs"), json::parse("[null,[[-1,120,null]]]"));
  // A large prompt's are not said again with every token, but at the end.
  options.prompts[0].logprob_tokens.assign(50'000, 'p');
  GenerateFormat large = Format(options);
  const std::vector<std::vector<LikelyToken>> top(49'999, {{'x', -1}});
  first.prompt_logprobs = std::make_shared<const PromptLogprobs>(PromptLogprobs{std::vector<float>(49'999, -2), top});
  EXPECT_EQ(Event(large, 0, first).at("meta_info").at("input_token_logprobs").as_array().size(), 50'000u);
  EXPECT_FALSE(Event(large, 0, Delta("i", {'i'})).at("meta_info").as_object().contains("input_token_logprobs"));
  ChoiceDelta last = Delta("j", {'j'});
  last.end = ChoiceEnd{AnswerFinish::kLength, {}, absl::Seconds(1)};
  EXPECT_EQ(Event(large, 0, last).at("meta_info").at("input_token_logprobs").as_array().size(), 50'000u);
  options.prompts[0].logprob_tokens.clear();
  GenerateFormat without = Format(options);
  EXPECT_EQ(Event(without, 0, Delta("h", {'h'})).at("meta_info").at("input_token_logprobs"), json::array());
}

}  // namespace
}  // namespace tandem::router

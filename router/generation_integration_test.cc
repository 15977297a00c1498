// What requests may ask for, over real sockets and gRPC: choices, logprobs, completions in every form, answers that end
// at once, stops and characters cut anywhere.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/testing/router_fixture.h"

namespace tandem::router {
namespace {

namespace json = boost::json;
using B = ByteTokenizer;

// A stream's choices added up, and what every stream must keep to checked.
struct Streamed {
  std::map<int, std::string> content;
  std::map<int, std::string> finish;
  std::map<int, std::string> tokens;  // of the logprobs, one text after the other
  int num_usages = 0;
  int num_empty_deltas = 0;
  json::value usage;
};

Streamed AddUp(const std::vector<std::string>& events, const char* text_member) {
  Streamed sum;
  EXPECT_EQ(std::count(events.begin(), events.end(), "[DONE]"), 1);
  EXPECT_EQ(events.back(), "[DONE]");
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const json::value chunk = json::parse(event);
    if (const json::value* usage = chunk.as_object().if_contains("usage"); usage != nullptr && !usage->is_null()) {
      ++sum.num_usages;
      sum.usage = *usage;
      EXPECT_TRUE(chunk.at("choices").as_array().empty());
    }
    for (const json::value& choice : chunk.at("choices").as_array()) {
      const int index = static_cast<int>(choice.at("index").as_int64());
      const json::value& body = choice.as_object().contains("delta") ? choice.at("delta") : choice;
      std::string text;
      if (const json::value* member = body.as_object().if_contains(text_member)) text = member->as_string().c_str();
      const bool is_role = body.as_object().contains("role");
      EXPECT_FALSE(sum.finish.contains(index)) << "news after the end";
      sum.content[index] += text;
      if (!choice.at("finish_reason").is_null()) {
        sum.finish[index] = choice.at("finish_reason").as_string().c_str();
      } else if (text.empty() && !is_role) {
        ++sum.num_empty_deltas;
      }
      const json::value& logprobs = choice.at("logprobs");
      if (logprobs.is_null()) continue;
      const json::value* content = logprobs.as_object().if_contains("content");
      const json::array& entries = content != nullptr ? content->as_array() : logprobs.at("tokens").as_array();
      for (const json::value& entry : entries) {
        sum.tokens[index] += content != nullptr ? entry.at("token").as_string().c_str() : entry.as_string().c_str();
      }
    }
  }
  return sum;
}

class GenerationTest : public RouterTest {
 protected:
  void SetUp() override { StartPair(); }
  void SendText(const FakeWorker::Request& request, uint32_t choice, uint32_t position, absl::string_view text,
                proto::FinishReason finish = proto::FINISH_REASON_UNSPECIFIED) {
    proto::SequenceTokens sequence;
    sequence.set_choice(choice);
    sequence.set_first_position(position);
    for (const TokenId token : B::Bytes(text)) sequence.add_tokens(token);
    sequence.set_finish_reason(finish);
    decode_->SendSequence(request.key, sequence);
  }
  static std::string Completion(absl::string_view members) {
    return PostCompletion(absl::StrCat(R"({"model":"m",)", members, "}"));
  }
};

TEST_F(GenerationTest, ChoicesOfAWholeAnswerEndEachInItsOwnWay) {
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("n":3,"stop":["END"])")));
  const FakeWorker::Request request = decode_->AwaitRequest();
  EXPECT_EQ(request.head.num_choices(), 3u);
  SendText(request, 2, 0, "two");
  SendText(request, 0, 0, "zeroEND");
  const proto::Cancel cancel = decode_->AwaitCancel();
  EXPECT_TRUE(cancel.has_choice());
  EXPECT_EQ(cancel.choice(), 0u);
  SendText(request, 0, 7, "too late");
  SendText(request, 1, 0, "", proto::FINISH_REASON_UNSPECIFIED);
  decode_->SendTokens(request.key, 0, {B::kEos}, proto::FINISH_REASON_UNSPECIFIED);  // of choice 0: too late as well
  proto::SequenceTokens eos;
  eos.set_choice(1);
  eos.add_tokens(B::kEos);
  eos.set_finish_reason(proto::FINISH_REASON_STOP);
  decode_->SendSequence(request.key, eos);
  SendText(request, 2, 3, "!", proto::FINISH_REASON_LENGTH);
  decode_->SendEnded(request.key);
  const RawClient::Response response = client.ReadResponse();
  ASSERT_EQ(response.status, 200) << response.body;
  const json::value body = json::parse(response.body);
  ASSERT_EQ(body.at("choices").as_array().size(), 3u);
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "zero");
  EXPECT_EQ(body.at("choices").at(0).at("matched_stop"), "END");
  EXPECT_EQ(body.at("choices").at(1).at("message").at("content"), "");
  EXPECT_EQ(body.at("choices").at(1).at("matched_stop"), B::kEos);
  EXPECT_EQ(body.at("choices").at(2).at("message").at("content"), "two!");
  EXPECT_EQ(body.at("choices").at(2).at("finish_reason"), "length");
  EXPECT_EQ(body.at("usage"), json::parse(UsageText(6, 12)));
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
  EXPECT_EQ(decode_->num_cancels(), 1) << "the request itself needed none";
}

TEST_F(GenerationTest, StreamOfChoicesIsTheWholeAnswersInPieces) {
  decode_->AnswerEverything({'h', 0xc3, 0xa9, '!', B::kEos}, proto::FINISH_REASON_STOP);
  const std::string members = R"("n":2,"logprobs":true,"top_logprobs":2)";
  const json::value whole = json::parse(Ask(members).body);
  const Streamed stream = AddUp(
      Events(Ask(absl::StrCat(members, R"(,"stream":true,"stream_options":{"include_usage":true})")).body), "content");
  for (int i = 0; i < 2; ++i) {
    const json::value& choice = whole.at("choices").at(i);
    EXPECT_EQ(choice.at("message").at("content"), "hé!");
    EXPECT_EQ(stream.content.at(i), "hé!");
    EXPECT_EQ(stream.finish.at(i), "stop");
    EXPECT_EQ(stream.tokens.at(i), "h\\xc3\\xa9!<｜end▁of▁sentence｜>");
    const json::array& entries = choice.at("logprobs").at("content").as_array();
    ASSERT_EQ(entries.size(), 5u) << "one for each counted token";
    EXPECT_EQ(entries[1].at("bytes"), json::parse("[195]"));
    EXPECT_EQ(entries[2].at("logprob"), -3);
    EXPECT_EQ(entries[2].at("top_logprobs").as_array().size(), 2u);
    EXPECT_EQ(entries[2].at("top_logprobs").at(1).at("logprob"), -4);
  }
  EXPECT_EQ(stream.num_empty_deltas, 0);
  EXPECT_EQ(stream.num_usages, 1);
  EXPECT_EQ(stream.usage, whole.at("usage"));
  EXPECT_EQ(stream.usage.at("completion_tokens"), 10);
  EXPECT_EQ(stream.usage.at("prompt_tokens"), 6);
}

TEST_F(GenerationTest, ClientThatLeavesAmongChoicesCancelsTheRequestOnce) {
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("n":2,"stream":true,"stop":["END"])")));
  const FakeWorker::Request request = decode_->AwaitRequest();
  SendText(request, 0, 0, "aEND");
  client.ReadUntil("\"finish_reason\":\"stop\"");
  EXPECT_TRUE(decode_->AwaitCancel().has_choice());
  client.Close();
  const proto::Cancel cancel = decode_->AwaitCancel();
  EXPECT_FALSE(cancel.has_choice());
  EXPECT_EQ(cancel.reason(), "client left");
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
}

TEST_F(GenerationTest, MoreChoicesThanTheSettingAllowsAre400) {
  const RawClient::Response response = Ask(R"("n":129)");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body).at("error").at("param"), "n");
}

// ---- Answers that end at once ----

TEST_F(GenerationTest, OneTokenIsTheWholeAnswer) {
  decode_->AnswerEverything({'x'}, proto::FINISH_REASON_LENGTH);
  for (const char* extra : {"", R"(,"logprobs":true)", R"(,"n":2)", R"(,"n":2,"logprobs":true)"}) {
    const json::value whole = json::parse(Ask(absl::StrCat(R"("max_tokens":1)", extra)).body);
    EXPECT_EQ(whole.at("choices").at(0).at("message").at("content"), "x");
    EXPECT_EQ(whole.at("choices").at(0).at("finish_reason"), "length");
    const auto num_choices = static_cast<int64_t>(whole.at("choices").as_array().size());
    EXPECT_EQ(whole.at("usage").at("completion_tokens"), num_choices);
    const Streamed stream = AddUp(Events(Ask(absl::StrCat(R"("max_tokens":1,"stream":true)", extra)).body), "content");
    EXPECT_EQ(stream.content.at(0), "x");
    EXPECT_EQ(stream.finish.at(0), "length");
    EXPECT_EQ(static_cast<int64_t>(stream.finish.size()), num_choices);
  }
}

TEST_F(GenerationTest, EosAsTheFirstTokenIsAnEmptyAnswerThatSaysStop) {
  decode_->AnswerEverything({B::kEos}, proto::FINISH_REASON_STOP);
  for (const char* extra : {"", R"(,"logprobs":true)", R"(,"n":2,"logprobs":true)"}) {
    const json::value whole = json::parse(Ask(absl::StrCat(R"("max_tokens":100)", extra)).body);
    EXPECT_EQ(whole.at("choices").at(0).at("message").at("content"), "") << "not null";
    EXPECT_EQ(whole.at("choices").at(0).at("finish_reason"), "stop");
    if (!whole.at("choices").at(0).at("logprobs").is_null()) {
      EXPECT_EQ(whole.at("choices").at(0).at("logprobs").at("content").as_array().size(), 1u);
    }
    const Streamed stream = AddUp(Events(Ask(absl::StrCat(R"("stream":true)", extra)).body), "content");
    EXPECT_EQ(stream.content.at(0), "");
    EXPECT_EQ(stream.finish.at(0), "stop");
    EXPECT_EQ(stream.num_empty_deltas, 0);
  }
}

TEST_F(GenerationTest, StopEqualToTheFirstTokenIsAnEmptyAnswerOfOneToken) {
  decode_->AnswerEverything({'x', 'y'}, proto::FINISH_REASON_LENGTH);
  const json::value whole = json::parse(Ask(R"("stop":"x","logprobs":true,"max_tokens":2)").body);
  EXPECT_EQ(whole.at("choices").at(0).at("message").at("content"), "");
  EXPECT_EQ(whole.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(whole.at("choices").at(0).at("matched_stop"), "x");
  EXPECT_TRUE(whole.at("choices").at(0).at("logprobs").at("content").as_array().empty());
  EXPECT_EQ(whole.at("usage").at("completion_tokens"), 1);
  const Streamed stream = AddUp(Events(Ask(R"("stop":"x","stream":true,"logprobs":true)").body), "content");
  EXPECT_EQ(stream.content.at(0), "");
  EXPECT_TRUE(stream.tokens.empty()) << "nothing of a stop is ever sent";
}

// ---- Stops and characters cut anywhere ----

TEST_F(GenerationTest, NoPartOfAStopIsStreamedAndNoDeltaIsEmpty) {
  const struct {
    const char* text;
    const char* stop;
    const char* shown;
  } kCases[] = {{"ABC DEFGHIJ K", R"("DEFGHIJ")", "ABC "},
                {"xabc", R"(["ab","abc"])", "x"},
                {"aaab", R"("aab")", "a"},
                {"ends in DEFGH", R"("DEFGHIJ")", "ends in DEFGH"},
                {"# Title", R"("###")", "# Title"}};
  for (const auto& test_case : kCases) {
    decode_->AnswerEverything(B::Bytes(test_case.text), proto::FINISH_REASON_LENGTH);
    const std::string members = absl::StrCat(R"("stream":true,"logprobs":true,"n":2,"stop":)", test_case.stop);
    const Streamed stream = AddUp(Events(Ask(members).body), "content");
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(stream.content.at(i), test_case.shown);
      EXPECT_EQ(stream.tokens.at(i), test_case.shown);
    }
    EXPECT_EQ(stream.num_empty_deltas, 0) << test_case.text;
  }
}

TEST_F(GenerationTest, CharactersArriveWholeAndACutOneIsReplacedOnceAtTheEnd) {
  const std::string text = "한글 \U0001F468\u200D\U0001F469\u200D\U0001F467 é";
  decode_->AnswerEverything(B::Bytes(text + "\xed\x95"), proto::FINISH_REASON_LENGTH);
  const Streamed stream = AddUp(Events(Ask(R"("stream":true)").body), "content");
  EXPECT_EQ(stream.content.at(0), text + "\uFFFD");
  EXPECT_EQ(stream.num_empty_deltas, 0);
}

// ---- Completions ----

TEST_F(GenerationTest, CompletionGoesThroughThePair) {
  RawClient client(port());
  client.Send(Completion(R"("prompt":"hi","max_tokens":4,"echo":true,"seed":3)"));
  const FakeWorker::Request request = decode_->AwaitRequest();
  EXPECT_EQ(request.prompt, (std::vector<uint32_t>{B::kBos, 'h', 'i'}));
  EXPECT_EQ(request.head.stopping().max_new_tokens(), 4u);
  SendText(request, 0, 0, " you", proto::FINISH_REASON_LENGTH);
  decode_->SendEnded(request.key);
  const RawClient::Response response = client.ReadResponse();
  ASSERT_EQ(response.status, 200) << response.body;
  const json::value body = json::parse(response.body);
  EXPECT_TRUE(absl::StartsWith(std::string(body.at("id").as_string()), "cmpl-"));
  EXPECT_EQ(body.at("object"), "text_completion");
  EXPECT_EQ(body.at("choices").at(0).at("text"), "hi you");
  EXPECT_EQ(body.at("usage"), json::parse(UsageText(3, 4)));
}

TEST_F(GenerationTest, PromptsOfOneRequestAreAnsweredInTheirPlaces) {
  for (const bool is_stream : {false, true}) {
    RawClient client(port());
    client.Send(Completion(absl::StrCat(R"("prompt":[[1],[2,2],[3,3,3]],"n":2)",
                                        is_stream ? R"(,"stream":true,"stream_options":{"include_usage":true})" : "")));
    for (int i = 0; i < 3; ++i) {
      const FakeWorker::Request request = decode_->AwaitRequest();
      const std::string name = absl::StrCat(request.prompt.size());
      SendText(request, 1, 0, absl::StrCat(name, "b"), proto::FINISH_REASON_LENGTH);
      SendText(request, 0, 0, absl::StrCat(name, "a"), proto::FINISH_REASON_LENGTH);
      decode_->SendEnded(request.key);
    }
    const RawClient::Response response = client.ReadResponse();
    ASSERT_EQ(response.status, 200) << response.body;
    const std::vector<std::string> kTexts = {"1a", "1b", "2a", "2b", "3a", "3b"};
    const json::value kUsage = json::parse(UsageText(6, 12));
    if (is_stream) {
      const Streamed stream = AddUp(Events(response.body), "text");
      for (int i = 0; i < 6; ++i) EXPECT_EQ(stream.content.at(i), kTexts[i]);
      EXPECT_EQ(stream.finish.size(), 6u);
      EXPECT_EQ(stream.usage, kUsage);
      EXPECT_EQ(stream.num_usages, 1);
      EXPECT_EQ(stream.num_empty_deltas, 0);
    } else {
      const json::value body = json::parse(response.body);
      for (int i = 0; i < 6; ++i) EXPECT_EQ(std::string(body.at("choices").at(i).at("text").as_string()), kTexts[i]);
      EXPECT_EQ(body.at("usage"), kUsage);
    }
    EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
  }
}

TEST_F(GenerationTest, OnePromptThatFailsFailsTheRequestAndCancelsTheOthers) {
  RawClient client(port());
  client.Send(Completion(R"("prompt":["a","b","c"])"));
  const FakeWorker::Request first = decode_->AwaitRequest();
  const FakeWorker::Request second = decode_->AwaitRequest();
  const FakeWorker::Request third = decode_->AwaitRequest();
  SendText(first, 0, 0, "done", proto::FINISH_REASON_LENGTH);
  decode_->SendEnded(first.key);
  decode_->SendEnded(second.key, absl::StatusCode::kInvalidArgument, "no token is left to draw");
  const proto::Cancel cancel = decode_->AwaitCancel();
  EXPECT_EQ(cancel.key().request_id(), third.key.request_id());
  const RawClient::Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body).at("error").at("message"), "no token is left to draw");
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
  EXPECT_EQ(AwaitMetric("tandem_router_requests_total{role=\"router\",code=\"400\"}", 1), 1) << "one request";
}

TEST_F(GenerationTest, ClientThatLeavesCancelsEveryPrompt) {
  RawClient client(port());
  client.Send(Completion(R"("prompt":["a","b"],"stream":true)"));
  const FakeWorker::Request first = decode_->AwaitRequest();
  decode_->AwaitRequest();
  SendText(first, 0, 0, "x");
  client.ReadUntil("\"text\":\"x\"");
  client.Close();
  const proto::Cancel one = decode_->AwaitCancel();
  const proto::Cancel other = decode_->AwaitCancel();
  EXPECT_NE(one.key().request_id(), other.key().request_id());
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
  EXPECT_EQ(AwaitMetric("tandem_router_requests_total{role=\"router\",code=\"499\"}", 1), 1);
}

TEST_F(GenerationTest, PromptWhoseWorkerIsUnavailableStartsAgainWhileTheOthersGoOn) {
  RawClient client(port());
  client.Send(Completion(R"("prompt":["a","b"])"));
  const FakeWorker::Request first = decode_->AwaitRequest();
  const FakeWorker::Request second = decode_->AwaitRequest();
  SendText(first, 0, 0, "one", proto::FINISH_REASON_LENGTH);
  decode_->SendEnded(second.key, absl::StatusCode::kUnavailable, "prefill worker is gone");
  const FakeWorker::Request again = decode_->AwaitRequest();
  EXPECT_EQ(again.key.request_id(), second.key.request_id());
  EXPECT_EQ(again.key.attempt(), 2u);
  SendText(again, 0, 0, "two", proto::FINISH_REASON_LENGTH);
  decode_->SendEnded(again.key);
  decode_->SendEnded(first.key);
  const json::value body = json::parse(client.ReadResponse().body);
  EXPECT_EQ(body.at("choices").at(0).at("text"), "one");
  EXPECT_EQ(body.at("choices").at(1).at("text"), "two");
}

TEST_F(GenerationTest, CompletionLogprobsAreTheLegacyArrays) {
  decode_->AnswerEverything({'a', 0xc3, 0xa9, 'b'}, proto::FINISH_REASON_LENGTH);
  const json::value body = json::parse(AskCompletion(R"("prompt":"x","logprobs":1)").body);
  EXPECT_EQ(body.at("choices").at(0).at("text"), "aéb");
  EXPECT_EQ(body.at("choices").at(0).at("logprobs"), json::parse(R"({"tokens":["a","bytes:\\xc3","bytes:\\xa9","b"],
      "token_logprobs":[-1,-2,-3,-4],"top_logprobs":[{"a":-1},{"bytes:\\xc3":-2},{"bytes:\\xa9":-3},{"b":-4}],
      "text_offset":[0,1,1,2]})"));
}

TEST_F(GenerationTest, CompletionMistakesAreErrorsOfTheApi) {
  const RawClient::Response response = AskCompletion(R"("prompt":"x","suffix":"y")");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body).at("error").at("param"), "suffix");
  RawClient client(port());
  client.Send(Get("/v1/completions"));
  EXPECT_EQ(client.ReadResponse().status, 405);
}

}  // namespace
}  // namespace tandem::router

// What a client is told for each output of a request's state, over an exchange that records.
#include "router/answer_writer.h"

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/openai/chat_response.h"
#include "router/testing/byte_tokenizer.h"

namespace tandem::router {
namespace {

class RecordingExchange final : public Exchange {
 public:
  const HttpRequest& request() const override { return request_; }
  std::string TakeBody() override { return ""; }
  void BodyDone() override {}
  void SetObserver(std::function<void(ExchangeEvent)>) override {}
  void AddHeader(const std::string&, const std::string&) override {}
  void Respond(HttpResponse answer) override {
    ++num_ends;
    response = std::move(answer);
  }
  void StartStream(const std::string& type, const std::string&) override { content_type = type; }
  void Write(absl::string_view bytes) override {
    ++num_writes;
    stream.append(bytes.data(), bytes.size());
  }
  void Finish() override { ++num_ends; }
  size_t num_unsent_bytes() const override { return 0; }
  void NotifyWhenDrained() override {}

  HttpResponse response;
  std::string content_type;
  std::string stream;
  int num_writes = 0;
  int num_ends = 0;

 private:
  HttpRequest request_;
};

class AnswerWriterTest : public testing::Test {
 protected:
  AnswerWriter Writer(bool is_stream, bool is_thinking = false, bool includes_usage = false) {
    return AnswerWriter(
        exchange_,
        std::make_unique<ChatFormat>(AnswerIdentity{"id", 1, "m"},
                                     ChatFormat::Options{is_thinking, includes_usage, false}, &tokenizer_),
        {is_stream, includes_usage, num_choices_});
  }
  static ChoiceDelta Content(const std::string& text) {
    ChoiceDelta delta;
    delta.text.content = text;
    return delta;
  }
  static ChoiceDelta End() {
    ChoiceDelta delta;
    delta.end = ChoiceEnd();
    return delta;
  }
  static absl::Status Error() { return absl::UnavailableError("lost"); }
  int Count(const std::string& what) const {
    int count = 0;
    for (size_t at = 0; (at = exchange_->stream.find(what, at)) != std::string::npos; at += what.size()) ++count;
    return count;
  }
  const ByteTokenizer tokenizer_;
  int num_choices_ = 1;
  const std::shared_ptr<RecordingExchange> exchange_ = std::make_shared<RecordingExchange>();
};

TEST_F(AnswerWriterTest, StreamOpensWithTheFirstNewsAndTheRoleComesOnce) {
  AnswerWriter writer = Writer(true);
  writer.Write(0, ChoiceDelta());
  EXPECT_EQ(exchange_->content_type, "") << "no news, no stream";
  writer.Write(0, Content("a"));
  writer.Write(0, ChoiceDelta());
  writer.Write(0, Content("b"));
  writer.Write(0, End());
  writer.Complete({});
  EXPECT_TRUE(absl::StartsWith(exchange_->content_type, "text/event-stream"));
  EXPECT_EQ(Count("\"role\""), 1);
  EXPECT_EQ(exchange_->num_writes, 4) << "none without news";
  EXPECT_EQ(Count("[DONE]"), 1);
  EXPECT_EQ(exchange_->num_ends, 1);
}

TEST_F(AnswerWriterTest, ErrorBeforeTheStreamIsAnHttpError) {
  AnswerWriter writer = Writer(true);
  writer.Fail(Error());
  EXPECT_EQ(exchange_->response.status, 503);
  EXPECT_EQ(exchange_->stream, "");
  EXPECT_EQ(exchange_->num_ends, 1);
}

TEST_F(AnswerWriterTest, ErrorInsideTheStreamIsAnEventWithoutFinishReason) {
  AnswerWriter writer = Writer(true);
  writer.Write(0, Content("a"));
  writer.Fail(Error());
  EXPECT_EQ(Count("\"error\":{\"message\":\"lost\""), 1);
  EXPECT_EQ(Count("\"finish_reason\":\""), 0);
  EXPECT_TRUE(absl::EndsWith(exchange_->stream, "data: [DONE]\n\n"));
  EXPECT_EQ(exchange_->num_ends, 1);
}

TEST_F(AnswerWriterTest, KeepaliveOpensTheStreamAndTheRoleStillComesFirst) {
  AnswerWriter writer = Writer(true);
  writer.WriteKeepalive();
  EXPECT_EQ(exchange_->stream, ": keep-alive\n\n");
  writer.Write(0, Content("a"));
  EXPECT_LT(exchange_->stream.find("\"role\""), exchange_->stream.find("\"content\":\"a\""));
}

TEST_F(AnswerWriterTest, ErrorAfterAKeepaliveIsInTheStreamForTheStatusHasGone) {
  AnswerWriter writer = Writer(true);
  writer.WriteKeepalive();
  writer.Fail(Error());
  EXPECT_EQ(exchange_->response.status, 200) << "untouched";
  EXPECT_EQ(Count("\"error\""), 1);
}

TEST_F(AnswerWriterTest, UsageComesOnceBetweenFinishAndDone) {
  AnswerWriter writer = Writer(true, false, /*includes_usage=*/true);
  writer.Write(0, Content("a"));
  writer.Write(0, End());
  writer.Complete({.prompt_tokens = 3, .completion_tokens = 2});
  EXPECT_EQ(Count("\"usage\":{"), 1);
  EXPECT_LT(exchange_->stream.find("\"finish_reason\":\"stop\""), exchange_->stream.find("\"usage\":{"));
  EXPECT_LT(exchange_->stream.find("\"usage\":{"), exchange_->stream.find("[DONE]"));
}

TEST_F(AnswerWriterTest, WholeAnswerIsSaidAtTheEnd) {
  AnswerWriter writer = Writer(false, /*is_thinking=*/true);
  ChoiceDelta reasoning;
  reasoning.text.reasoning = "why";
  writer.Write(0, reasoning);
  writer.Write(0, Content("a"));
  writer.Write(0, Content("b"));
  writer.WriteKeepalive();
  writer.Write(0, End());
  EXPECT_EQ(exchange_->num_ends, 0);
  writer.Complete({3, 2, 1});
  const boost::json::value body = boost::json::parse(exchange_->response.body);
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "ab");
  EXPECT_EQ(body.at("choices").at(0).at("message").at("reasoning_content"), "why");
  EXPECT_EQ(exchange_->stream, "");
  EXPECT_EQ(exchange_->num_ends, 1);
}

TEST_F(AnswerWriterTest, EachChoiceOfAStreamOpensAndEndsByItselfAndDoneComesOnce) {
  num_choices_ = 2;
  AnswerWriter writer = Writer(true, false, /*includes_usage=*/true);
  writer.Write(1, Content("b"));
  writer.Write(1, End());
  EXPECT_EQ(Count("\"finish_reason\":\"stop\""), 1) << "it does not wait for the other";
  writer.Write(0, Content("a"));
  writer.Write(0, End());
  EXPECT_EQ(Count("[DONE]"), 0);
  writer.Complete({.prompt_tokens = 3, .completion_tokens = 4});
  EXPECT_EQ(Count("\"role\""), 2);
  EXPECT_EQ(Count("{\"index\":0,"), 3);
  EXPECT_EQ(Count("{\"index\":1,"), 3);
  EXPECT_EQ(Count("\"usage\":{"), 1);
  EXPECT_EQ(Count("[DONE]"), 1);
}

TEST_F(AnswerWriterTest, ChoicesOfAWholeAnswerStandInTheirOrder) {
  num_choices_ = 2;
  AnswerWriter writer = Writer(false);
  writer.Write(1, Content("b"));
  writer.Write(1, End());
  writer.Write(0, Content("a"));
  writer.Write(0, End());
  writer.Complete({});
  const boost::json::value body = boost::json::parse(exchange_->response.body);
  ASSERT_EQ(body.at("choices").as_array().size(), 2u);
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "a");
  EXPECT_EQ(body.at("choices").at(1).at("message").at("content"), "b");
  EXPECT_EQ(body.at("choices").at(1).at("index"), 1);
}

TEST_F(AnswerWriterTest, CallsOfAWholeAnswerAreJoined) {
  AnswerWriter writer = Writer(/*is_stream=*/false);
  ChoiceDelta delta;
  delta.text.tool_calls = {{0, "f", ""}, {0, "", "{\"x\""}};
  writer.Write(0, delta);
  delta.text.tool_calls = {{0, "", ": 1}"}, {1, "g", "{}"}};
  writer.Write(0, delta);
  EXPECT_TRUE(writer.has_content());
  writer.Write(0, End());
  writer.Complete({});
  const boost::json::value body = boost::json::parse(exchange_->response.body);
  const boost::json::value& calls = body.at("choices").at(0).at("message").at("tool_calls");
  EXPECT_EQ(calls.at(0).at("function"), boost::json::parse(R"({"name":"f","arguments":"{\"x\": 1}"})"));
  EXPECT_EQ(calls.at(1).at("function"), boost::json::parse(R"({"name":"g","arguments":"{}"})"));
}

TEST_F(AnswerWriterTest, WholeAnswerThatFailsHidesItsBeginning) {
  AnswerWriter writer = Writer(false);
  writer.Write(0, Content("a"));
  writer.Fail(Error());
  EXPECT_EQ(exchange_->response.status, 503);
  EXPECT_FALSE(absl::StrContains(exchange_->response.body, "\"choices\""));
}

TEST(ErrorResponseTest, OverloadAndUnavailabilitySayWhenToComeBack) {
  EXPECT_EQ(ErrorResponse(absl::ResourceExhaustedError("x")).headers.size(), 1u);
  EXPECT_EQ(ErrorResponse(absl::UnavailableError("x")).headers.size(), 1u);
  EXPECT_TRUE(ErrorResponse(absl::InvalidArgumentError("x")).headers.empty());
}

}  // namespace
}  // namespace tandem::router

// The whole router and clients that leave, read slowly, wait long or have heard enough: each costs its own request
// alone.
#include <string>
#include <utility>
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

using ClientIntegrationTest = RouterTest;

// Every way of leaving, before and after the first token: the worker hears of it, and nothing stays behind.
class ClientLeavesTest : public RouterTest, public testing::WithParamInterface<std::pair<bool, bool>> {};

TEST_P(ClientLeavesTest, RequestIsCancelledAndConfirmed) {
  const auto [is_reset, has_first_token] = GetParam();
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("stream":true)")));
  const FakeWorker::Request request = decode_->AwaitRequest();
  if (has_first_token) {
    decode_->SendTokens(request.key, 0, B::Bytes("a"));
    client.ReadUntil("\"content\":\"a\"");
  }
  is_reset ? client.Reset() : client.Close();
  const proto::Cancel cancel = decode_->AwaitCancel();
  EXPECT_EQ(cancel.key().request_id(), request.key.request_id());
  EXPECT_EQ(cancel.key().router_incarnation(), request.key.router_incarnation());
  EXPECT_EQ(cancel.reason(), "client left");
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
  EXPECT_EQ(AwaitMetric("tandem_router_requests_total{role=\"router\",code=\"499\"}", 1), 1);
  EXPECT_EQ(AwaitMetric("tandem_router_unconfirmed_releases_total{role=\"router\"}", 0), 0);
  EXPECT_EQ(decode_->num_cancels(), 1);
}

INSTANTIATE_TEST_SUITE_P(AllWays, ClientLeavesTest,
                         testing::Values(std::pair(false, false), std::pair(false, true), std::pair(true, false),
                                         std::pair(true, true)));

TEST_F(ClientIntegrationTest, HalfClosedClientIsServed) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody()));
  client.ShutdownSend();
  const FakeWorker::Request request = decode_->AwaitRequest();
  decode_->SendTokens(request.key, 0, {'a', B::kEos}, proto::FINISH_REASON_STOP);
  decode_->SendEnded(request.key);
  EXPECT_TRUE(absl::StrContains(client.ReadToClose(), "\"content\":\"a\""));
  EXPECT_EQ(decode_->num_cancels(), 0);
}

TEST_F(ClientIntegrationTest, StopStringEndsTheAnswerAtOnceAndCancels) {
  StartPair();
  decode_->ConfirmCancels(false);
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("stop":["END"])")));
  const FakeWorker::Request request = decode_->AwaitRequest();
  decode_->SendTokens(request.key, 0, B::Bytes("okE"));
  decode_->SendTokens(request.key, 3, B::Bytes("NDmore"));
  const json::value body = json::parse(client.ReadResponse().body);
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "ok");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 5);
  EXPECT_EQ(decode_->AwaitCancel().reason(), "stop string");
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 1), 1) << "not confirmed yet";
  decode_->SendEnded(request.key, absl::StatusCode::kOk, "", /*is_cancelled=*/true);
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
}

TEST_F(ClientIntegrationTest, DeadlineEndsTheRequestWith504) {
  options_.pipeline.request_time_max = absl::Seconds(2);  // in which it has reached decode on a busy machine, too
  StartPair();
  EXPECT_EQ(Ask().status, 504);
  EXPECT_EQ(decode_->AwaitCancel().reason(), "deadline");
}

// n, max_tokens and logprobs multiply: a whole answer is kept until its end, so it has a bound. A stream is not kept.
TEST_F(ClientIntegrationTest, AWholeAnswerBeyondTheBoundIsRefusedAndAStreamIsNot) {
  options_.pipeline.whole_answer_bytes_max = 5000;
  StartPair();
  decode_->AnswerEverything(B::Bytes(std::string(200, 'x')), proto::FINISH_REASON_LENGTH);
  EXPECT_EQ(Ask(R"("max_tokens":200)").status, 200);
  const std::string with_logprobs = R"("max_tokens":200,"logprobs":true)";
  const RawClient::Response refused = Ask(with_logprobs);
  EXPECT_EQ(refused.status, 400);
  EXPECT_TRUE(absl::StrContains(refused.body, "the answer takes more than 5000 bytes")) << refused.body;
  EXPECT_EQ(Ask(absl::StrCat(with_logprobs, R"(,"stream":true)")).status, 200);
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
}

TEST_F(ClientIntegrationTest, WholeAnswersOfAllClientsShareOneBound) {
  options_.pipeline.whole_answers_bytes_max = 300;
  StartPair();
  RawClient first(port());
  first.Send(PostChat(ChatBody(R"("max_tokens":400)")));
  const FakeWorker::Request request = decode_->AwaitRequest();
  decode_->SendTokens(request.key, 0, B::Bytes(std::string(200, 'x')));
  EXPECT_EQ(AwaitMetric("tandem_generation_tokens_total{role=\"router\"}", 200), 200);
  RawClient second(port());
  second.Send(PostChat(ChatBody(R"("max_tokens":400)")));
  const FakeWorker::Request other = decode_->AwaitRequest();
  decode_->SendTokens(other.key, 0, B::Bytes(std::string(200, 'x')));
  EXPECT_EQ(second.ReadResponse().status, 429);
  decode_->SendEnded(other.key, absl::StatusCode::kOk, "", /*is_cancelled=*/true);
  decode_->SendTokens(request.key, 200, B::Bytes("y"), proto::FINISH_REASON_LENGTH);
  decode_->SendEnded(request.key);
  EXPECT_EQ(first.ReadResponse().status, 200);
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
  decode_->AnswerEverything(B::Bytes(std::string(200, 'x')), proto::FINISH_REASON_LENGTH);
  EXPECT_EQ(Ask(R"("max_tokens":200)").status, 200) << "the room is back";
}

TEST_F(ClientIntegrationTest, SilentStreamGetsKeepaliveComments) {
  options_.pipeline.keepalive_interval = absl::Milliseconds(50);
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("stream":true)")));
  const FakeWorker::Request request = decode_->AwaitRequest();
  std::string body = client.ReadUntil(": keep-alive\n\n");
  body += client.ReadUntil(": keep-alive\n\n");
  decode_->SendTokens(request.key, 0, {'a', B::kEos}, proto::FINISH_REASON_STOP);
  decode_->SendEnded(request.key);
  body += client.ReadUntil("[DONE]");
  EXPECT_TRUE(absl::StrContains(body, "\"content\":\"a\"")) << body;
}

TEST_F(ClientIntegrationTest, SlowReaderGetsEverythingAndHoldsUpNobody) {
  options_.pipeline.unsent_bytes_max = 4096;
  StartPair();
  const std::string text(400'000, 'x');  // far more than the kernel takes, if it leaves in one piece
  RawClient slow(port(), /*receive_buffer_bytes=*/4096);
  slow.Send(PostChat(ChatBody(absl::StrCat(R"("stream":true,"max_tokens":)", text.size()))));
  const FakeWorker::Request request = decode_->AwaitRequest();
  const int num_first = static_cast<int>(text.size()) - 1;
  decode_->SendTokens(request.key, 0, B::Bytes(text.substr(1)));
  EXPECT_EQ(AwaitMetric("tandem_generation_tokens_total{role=\"router\"}", num_first), num_first) << "in one turn";
  decode_->SendTokens(request.key, num_first, B::Bytes("x"), proto::FINISH_REASON_LENGTH);
  decode_->SendEnded(request.key);
  EXPECT_GT(AwaitMetricAbove("tandem_router_slow_readers_total{role=\"router\"}", 0), 0);
  decode_->AnswerEverything({'y', B::kEos}, proto::FINISH_REASON_STOP);
  EXPECT_EQ(Ask().status, 200) << "while the slow one has not read a byte";
  const RawClient::Response response = slow.ReadResponse();
  const std::vector<std::string> events = Events(response.body);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(ContentOf(events), text);
}

}  // namespace
}  // namespace tandem::router

// The whole router with more requests than it takes: who waits in line, who is refused, and with what advice.

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "router/testing/router_fixture.h"

namespace tandem::router {
namespace {

using B = ByteTokenizer;

using RouterAdmissionTest = RouterTest;

TEST_F(RouterAdmissionTest, RequestsBeyondTheBoundGet429) {
  options_.admission = {.in_flight_max = 1, .waiting_max = 0};
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody()));
  const FakeWorker::Request request = decode_->AwaitRequest();
  const RawClient::Response refused = Ask();
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(absl::StrContains(refused.head, "Retry-After: 1"));
  decode_->SendTokens(request.key, 0, {B::kEos}, proto::FINISH_REASON_STOP);
  decode_->SendEnded(request.key);
  EXPECT_EQ(client.ReadResponse().status, 200);
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
  decode_->AnswerEverything({B::kEos}, proto::FINISH_REASON_STOP);
  EXPECT_EQ(Ask().status, 200) << "the place is back";
}

TEST_F(RouterAdmissionTest, RequestsInLineAreServedInTurnAndCounted) {
  options_.admission = {.in_flight_max = 1, .waiting_max = 2};
  StartPair();
  RawClient first(port()), second(port()), third(port());
  first.Send(PostChat(ChatBody()));
  const FakeWorker::Request running = decode_->AwaitRequest();
  second.Send(PostChat(ChatBody("", "second")));
  EXPECT_EQ(AwaitMetric("tandem_router_requests_waiting{role=\"router\"}", 1), 1);
  third.Send(PostChat(ChatBody("", "third")));
  EXPECT_EQ(AwaitMetric("tandem_router_requests_waiting{role=\"router\"}", 2), 2);
  EXPECT_EQ(Ask().status, 429);
  third.Reset();
  EXPECT_EQ(AwaitMetric("tandem_router_requests_waiting{role=\"router\"}", 1), 1) << "whoever leaves, leaves the line";
  decode_->AnswerEverything({B::kEos}, proto::FINISH_REASON_STOP);
  decode_->SendTokens(running.key, 0, {B::kEos}, proto::FINISH_REASON_STOP);
  decode_->SendEnded(running.key);
  EXPECT_EQ(first.ReadResponse().status, 200);
  EXPECT_EQ(second.ReadResponse().status, 200);
  EXPECT_EQ(AwaitMetric("tandem_router_requests_waiting{role=\"router\"}", 0), 0);
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
}

TEST_F(RouterAdmissionTest, WhoeverWaitsTooLongInLineGets429) {
  options_.admission = {.in_flight_max = 1, .waiting_max = 1};
  options_.pipeline.queue_time_max = absl::Milliseconds(20);
  StartPair();
  RawClient running(port());
  running.Send(PostChat(ChatBody()));
  decode_->AwaitRequest();
  const RawClient::Response refused = Ask();
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(absl::StrContains(refused.head, "Retry-After: ")) << refused.head;
  EXPECT_TRUE(absl::StrContains(refused.body, "no place in flight within 20ms, the limit is 1 requests"))
      << refused.body;
}

TEST_F(RouterAdmissionTest, AFullWorkerIs429WithAdvice) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody()));
  decode_->SendEnded(decode_->AwaitRequest().key, absl::StatusCode::kResourceExhausted,
                     "requests in line: 4, at most 4");
  const RawClient::Response refused = client.ReadResponse();
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(absl::StrContains(refused.head, "Retry-After: ")) << refused.head;
}

}  // namespace
}  // namespace tandem::router

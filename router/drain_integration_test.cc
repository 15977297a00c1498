// The whole router that is told to end: what runs ends, what is new is refused, and nobody is left without a word.
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "router/testing/router_fixture.h"

namespace tandem::router {
namespace {

using B = ByteTokenizer;

using DrainTest = RouterTest;

TEST_F(DrainTest, DrainLetsStreamsFinish) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("stream":true)")));
  const FakeWorker::Request request = decode_->AwaitRequest();
  decode_->SendTokens(request.key, 0, B::Bytes("a"));
  client.ReadUntil("\"content\":\"a\"");
  std::thread drain([this] { EXPECT_EQ(shard_->Drain({.grace = absl::Hours(1)}), absl::OkStatus()); });
  decode_->SendTokens(request.key, 1, {B::kEos}, proto::FINISH_REASON_STOP);
  decode_->SendEnded(request.key);
  EXPECT_TRUE(absl::StrContains(client.ReadToClose(), "[DONE]"));
  drain.join();
}

TEST_F(DrainTest, DrainCanBeWatchedAndTakesNoNewRequests) {
  StartPair();
  RawClient busy(port());
  busy.Send(PostChat(ChatBody()));
  const FakeWorker::Request request = decode_->AwaitRequest();
  std::thread drain([this] { EXPECT_EQ(shard_->Drain({.grace = absl::Hours(1)}), absl::OkStatus()); });
  const auto ask = [this](const std::string& bytes) {
    RawClient client(port());
    client.Send(bytes);
    return client.ReadResponse();
  };
  ASSERT_TRUE(AwaitReady(503));
  EXPECT_EQ(ask(Get("/readyz")).body, "draining\n");
  for (const char* path : {"/health", "/metrics", "/statusz"}) EXPECT_EQ(ask(Get(path)).status, 200) << path;
  const RawClient::Response refused = ask(PostChat(ChatBody()));
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(absl::StrContains(refused.body, "draining")) << refused.body;
  EXPECT_TRUE(absl::StrContains(refused.head, "Retry-After: ")) << refused.head;
  EXPECT_TRUE(absl::StrContains(refused.head, "Connection: close")) << refused.head;
  decode_->SendTokens(request.key, 0, {B::kEos}, proto::FINISH_REASON_STOP);
  decode_->SendEnded(request.key);
  EXPECT_EQ(busy.ReadResponse().status, 200) << "what runs, ends";
  drain.join();
}

TEST_F(DrainTest, DrainThatRunsOutSaysSoInTheStream) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("stream":true)")));
  const FakeWorker::Request request = decode_->AwaitRequest();
  decode_->SendTokens(request.key, 0, B::Bytes("a"));
  client.ReadUntil("\"content\":\"a\"");
  const absl::Status drained = shard_->Drain({});
  EXPECT_EQ(drained.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(drained.message(), "1 requests were given up when the drain ran out");
  const std::string rest = client.ReadToClose();
  EXPECT_TRUE(absl::StrContains(rest, "router is shutting down")) << rest;
  EXPECT_TRUE(absl::StrContains(rest, "[DONE]")) << rest;
  EXPECT_EQ(decode_->AwaitCancel().key().request_id(), request.key.request_id());
}

TEST_F(DrainTest, DuringTheNoticeItIsNotReadyAndServes) {
  StartPair();
  decode_->AnswerEverything({B::kEos}, proto::FINISH_REASON_STOP);
  std::thread drain(
      [this] { EXPECT_EQ(shard_->Drain({.notice = absl::Hours(1), .grace = absl::Hours(1)}), absl::OkStatus()); });
  EXPECT_TRUE(AwaitReady(503));
  EXPECT_EQ(Ask().status, 200);
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0) << "nothing is left to give up";
  shard_->HurryDrain();
  drain.join();
}

TEST_F(DrainTest, AHurriedDrainTellsEveryClientThoughTheWorkersConfirmNothing) {
  StartPair();
  decode_->ConfirmCancels(false);
  RawClient stream(port()), whole(port());
  stream.Send(PostChat(ChatBody(R"("stream":true)")));
  decode_->SendTokens(decode_->AwaitRequest().key, 0, B::Bytes("a"));
  stream.ReadUntil("\"content\":\"a\"");
  whole.Send(PostChat(ChatBody()));
  decode_->AwaitRequest();
  absl::Status drained;
  std::thread drain([&] { drained = shard_->Drain({.grace = absl::Hours(1)}); });
  ASSERT_TRUE(AwaitReady(503));
  shard_->HurryDrain();
  const std::string rest = stream.ReadToClose();
  EXPECT_TRUE(absl::StrContains(rest, "router is shutting down")) << rest;
  EXPECT_TRUE(absl::StrContains(rest, "[DONE]")) << rest;
  EXPECT_EQ(whole.ReadResponse().status, 503);
  drain.join();
  EXPECT_EQ(drained.message(), "2 requests were given up when the drain ran out");
}

}  // namespace
}  // namespace tandem::router

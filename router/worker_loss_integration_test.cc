// The whole router and workers that die, fall silent, come back, drain or refuse: who is tried again, where, and what
// the client hears.
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/held_port.h"
#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/failover.h"
#include "router/testing/router_fixture.h"

namespace tandem::router {
namespace {

namespace json = boost::json;
using B = ByteTokenizer;

using WorkerLossTest = RouterTest;

TEST_F(WorkerLossTest, WorkerThatDiesInsideAStreamIsAnErrorInTheStreamWhereNobodyElseComes) {
  options_.pipeline.failover_wait_max = absl::Milliseconds(1);
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("stream":true)")));
  const FakeWorker::Request request = decode_->AwaitRequest();
  decode_->SendTokens(request.key, 0, B::Bytes("ab"));
  std::string body = client.ReadUntil("\"content\":\"ab\"");
  decode_->Kill();
  body += client.ReadUntil("[DONE]");
  EXPECT_TRUE(absl::StrContains(body, "\"error\":{\"message\":\"decode worker ")) << body;
  EXPECT_TRUE(absl::StrContains(body, "service_unavailable")) << body;
  EXPECT_FALSE(absl::StrContains(body, "\"finish_reason\":\"")) << body;
  EXPECT_EQ(AwaitMetric("tandem_router_requests_total{role=\"router\",code=\"503\"}", 1), 1);
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
}

TEST_F(WorkerLossTest, WorkerThatDiesBeforeTheFirstTokenIs503) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("stream":true)")));
  decode_->AwaitRequest();
  decode_->Kill();
  const RawClient::Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 503);
  EXPECT_TRUE(absl::StrContains(response.head, "Retry-After"));
  EXPECT_EQ(Ask().status, 503) << "and further requests are refused at once";
}

TEST_F(WorkerLossTest, RequestThatFoundNoWorkerIsTriedAgainAFewTimes) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody()));
  const FakeWorker::Request first = decode_->AwaitRequest();
  decode_->SendEnded(first.key, absl::StatusCode::kUnavailable, "prefill worker is gone");
  const FakeWorker::Request second = decode_->AwaitRequest();
  EXPECT_EQ(second.key.request_id(), first.key.request_id());
  EXPECT_EQ(second.key.attempt(), 2u);
  EXPECT_EQ(second.prompt, first.prompt);
  EXPECT_LE(second.head.remaining_time_us(), first.head.remaining_time_us());
  decode_->SendTokens(second.key, 0, {'x', B::kEos}, proto::FINISH_REASON_STOP);
  decode_->SendEnded(second.key);
  EXPECT_EQ(client.ReadResponse().status, 200);

  client.Send(PostChat(ChatBody()));
  for (int i = 0; i < Failover::kFailuresMax; ++i) {
    decode_->SendEnded(decode_->AwaitRequest().key, absl::StatusCode::kUnavailable, "prefill worker is gone");
  }
  EXPECT_EQ(client.ReadResponse().status, 503) << "the last failure is the answer";
}

// One a second, and one at once after a quiet second: the second time is no sooner than a second after the first.
TEST_F(WorkerLossTest, RequestsAreResumedAtABoundedPace) {
  options_.pipeline.failovers_per_second = 1;
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody()));
  const FakeWorker::Request first = decode_->AwaitRequest();
  const absl::Duration begin = base::RealClock().Now();
  decode_->SendEnded(first.key, absl::StatusCode::kUnavailable, "prefill worker is gone");
  decode_->SendEnded(decode_->AwaitRequest().key, absl::StatusCode::kUnavailable, "prefill worker is gone");
  const FakeWorker::Request third = decode_->AwaitRequest();
  EXPECT_EQ(third.key.attempt(), 3u);
  EXPECT_GE(base::RealClock().Now() - begin, absl::Seconds(1));
}

TEST_F(WorkerLossTest, AnAnswerThatHasBegunGoesOnWithTheTokensOfEachChoice) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("n":3)")));
  const FakeWorker::Request first = decode_->AwaitRequest();
  const auto send = [&](const FakeWorker::Request& request, uint32_t choice, uint32_t position,
                        const std::vector<uint32_t>& tokens) {
    proto::SequenceTokens sequence;
    sequence.set_choice(choice);
    sequence.set_first_position(position);
    sequence.mutable_tokens()->Add(tokens.begin(), tokens.end());
    if (tokens.back() == B::kEos) sequence.set_finish_reason(proto::FINISH_REASON_STOP);
    decode_->SendSequence(request.key, sequence);
  };
  send(first, 0, 0, {'x', 'y'});
  send(first, 1, 0, {'d', B::kEos});
  decode_->SendEnded(first.key, absl::StatusCode::kUnavailable, "prefill worker is gone");
  const FakeWorker::Request second = decode_->AwaitRequest();
  EXPECT_EQ(second.key.attempt(), 2u);
  EXPECT_EQ(second.prompt, first.prompt);
  EXPECT_EQ(second.head.sampling().seed(), first.head.sampling().seed());
  EXPECT_EQ(second.generated, (std::vector<uint32_t>{'x', 'y'}));
  ASSERT_EQ(second.head.resumed_size(), 3);
  EXPECT_EQ(second.head.resumed(0).num_tokens(), 2u);
  EXPECT_TRUE(second.head.resumed(1).has_ended());
  EXPECT_EQ(second.head.resumed(2).num_tokens(), 0u);
  send(second, 0, 2, {'z', B::kEos});
  send(second, 2, 0, {'w', B::kEos});
  decode_->SendEnded(second.key);
  const RawClient::Response response = client.ReadResponse();
  ASSERT_EQ(response.status, 200) << response.body;
  const json::value answer = json::parse(response.body);
  EXPECT_EQ(answer.at("choices").at(0).at("message").at("content"), "xyz");
  EXPECT_EQ(answer.at("choices").at(1).at("message").at("content"), "d");
  EXPECT_EQ(answer.at("choices").at(2).at("message").at("content"), "w");
  EXPECT_EQ(AwaitMetric("tandem_router_failovers_total{role=\"router\",had_tokens=\"yes\"}", 1), 1);
  EXPECT_EQ(AwaitMetric("tandem_router_requests_without_worker{role=\"router\"}", 0), 0);
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
}

TEST_F(WorkerLossTest, WorkerThatDiesBeforeTheFirstTokenIsReplacedByAnother) {
  prefill_ =
      std::make_unique<FakeWorker>(FakeWorker::Options{.role = WorkerRole::kPrefill, .bootstrap_address = kBootstrap});
  FakeWorker first(FakeWorker::Options{.role = WorkerRole::kDecode});
  FakeWorker second(FakeWorker::Options{.role = WorkerRole::kDecode});
  first.ReportUsable(kBootstrap);
  second.ReportUsable(kBootstrap);
  second.AnswerEverything({'x', B::kEos}, proto::FINISH_REASON_STOP);
  options_.decode_workers = {first.address(), second.address()};
  StartShard();
  ASSERT_EQ(AwaitMetric("tandem_router_usable_pairs{role=\"router\"}", 2), 2);
  RawClient client(port());
  client.Send(PostChat(ChatBody()));
  EXPECT_EQ(first.AwaitRequest().key.attempt(), 1u) << "equal pairs are used in the order of the settings";
  first.Kill();
  EXPECT_EQ(second.AwaitRequest().key.attempt(), 2u);
  EXPECT_EQ(client.ReadResponse().status, 200);
}

TEST_F(WorkerLossTest, StreamsThatBreakAreGoneOnWithWhereTheyWereCut) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("stream":true)")));
  const FakeWorker::Request request = decode_->AwaitRequest();
  decode_->SendTokens(request.key, 0, B::Bytes("ab"));
  std::string body = client.ReadUntil("\"content\":\"ab\"");
  decode_->CutStreams();
  const proto::Reattach reattach = decode_->AwaitReattach();
  ASSERT_EQ(reattach.positions_size(), 1);
  EXPECT_EQ(reattach.positions(0).key().request_id(), request.key.request_id());
  EXPECT_EQ(reattach.positions(0).next_position(), 2u);
  decode_->SendTokens(request.key, 1, B::Bytes("bc"));  // the first of them once more: dropped
  decode_->SendTokens(request.key, 3, {B::kEos}, proto::FINISH_REASON_STOP);
  decode_->SendEnded(request.key);
  body += client.ReadUntil("[DONE]");
  EXPECT_TRUE(absl::StrContains(body, "\"content\":\"c\"")) << body;
  EXPECT_TRUE(absl::StrContains(body, "\"finish_reason\":\"stop\"")) << body;
  EXPECT_FALSE(absl::StrContains(body, "error")) << body;
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
}

// The only worker is back, but has not said yet whom it can use: whoever asks meanwhile is not told to come again.
TEST_F(WorkerLossTest, ARequestWaitsForTheOnlyWorkerToBeUsableAgain) {
  StartPair();
  decode_->AnswerEverything({'x', B::kEos}, proto::FINISH_REASON_STOP);
  decode_->ReportNobody();
  for (int attempt = 0; attempt < 20; ++attempt) {
    decode_->CutStreams();
    AwaitMetric("tandem_router_usable_pairs{role=\"router\"}", 0);
    AwaitMetric("tandem_router_workers_up{role=\"router\",worker_role=\"decode\"}", 1);
    RawClient client(port());
    client.Send(PostChat(ChatBody("")));
    AwaitMetric("tandem_router_requests_without_worker{role=\"router\"}", 1);
    decode_->SendPeerStatus(kBootstrap, true);
    const RawClient::Response response = client.ReadResponse();
    if (response.status == 200) return;
    ASSERT_EQ(response.status, 503) << response.body;  // this machine took longer than the request waits
  }
  FAIL() << "no request was served after its wait";
}

TEST_F(WorkerLossTest, SilentWorkerIsLeftAlthoughItsStreamIsOpen) {
  options_.link_times = LinkTimes();
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody()));
  decode_->AwaitRequest();
  decode_->SetSilent(true);
  const RawClient::Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 503);
  EXPECT_TRUE(absl::StrContains(response.body, "silent for")) << response.body;
}

TEST_F(WorkerLossTest, WorkerThatComesBackIsUsedAgain) {
  const base::HeldPort held_port;
  const FakeWorker::Options decode = {.role = WorkerRole::kDecode, .port = absl::StrCat(held_port.port())};
  prefill_ =
      std::make_unique<FakeWorker>(FakeWorker::Options{.role = WorkerRole::kPrefill, .bootstrap_address = kBootstrap});
  decode_ = std::make_unique<FakeWorker>(decode);
  decode_->ReportUsable(kBootstrap);
  StartShard();
  ASSERT_TRUE(AwaitReady());
  decode_->Kill();
  ASSERT_TRUE(AwaitReady(503));
  decode_.reset();
  decode_ = std::make_unique<FakeWorker>(decode);
  decode_->ReportUsable(kBootstrap);
  decode_->AnswerEverything({'x', B::kEos}, proto::FINISH_REASON_STOP);
  ASSERT_TRUE(AwaitReady());
  EXPECT_EQ(Ask().status, 200);
}

TEST_F(WorkerLossTest, DrainingWorkerGetsNoNewRequests) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody()));
  const FakeWorker::Request request = decode_->AwaitRequest();
  decode_->SendDraining();
  ASSERT_TRUE(AwaitReady(503));
  EXPECT_EQ(Ask().status, 503);
  decode_->SendTokens(request.key, 0, {B::kEos}, proto::FINISH_REASON_STOP);
  decode_->SendEnded(request.key);
  EXPECT_EQ(client.ReadResponse().status, 200) << "what it has, it finishes";
}

TEST_F(WorkerLossTest, WorkersErrorBecomesTheHttpStatusOfItsCode) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("stream":true)")));
  decode_->SendEnded(decode_->AwaitRequest().key, absl::StatusCode::kDeadlineExceeded, "out of time");
  const RawClient::Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 504);
  EXPECT_EQ(json::parse(response.body).at("error").at("message"), "out of time");
}

TEST_F(WorkerLossTest, WhatBreaksTwoWorkersIsNotGivenToAThird) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("stream":true)")));
  for (int i = 0; i < Failover::kCrashesMax; ++i) {
    decode_->SendEnded(decode_->AwaitRequest().key, absl::StatusCode::kDataLoss, "sums disagree after the refetch");
  }
  const RawClient::Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 500);
  EXPECT_TRUE(absl::StrContains(response.body, "2 workers")) << response.body;
  EXPECT_TRUE(absl::StrContains(response.body, "sums disagree after the refetch")) << response.body;
}

TEST_F(WorkerLossTest, PromptBeyondTheWorkersIsTheSameErrorAsOneBeyondTheContext) {
  prefill_ =
      std::make_unique<FakeWorker>(FakeWorker::Options{.role = WorkerRole::kPrefill, .bootstrap_address = kBootstrap});
  decode_ = std::make_unique<FakeWorker>(FakeWorker::Options{.role = WorkerRole::kDecode, .context_length_max = 16});
  decode_->ReportUsable(kBootstrap);
  StartShard();
  ASSERT_TRUE(AwaitReady());
  RawClient client(port());
  client.Send(PostChat(ChatBody("", std::string(16, 'x'))));
  const RawClient::Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 400);
  const json::value error = json::parse(response.body).at("error");
  EXPECT_EQ(error.at("code"), "context_length_exceeded") << response.body;
  EXPECT_EQ(error.at("param"), "messages") << response.body;
}

}  // namespace
}  // namespace tandem::router

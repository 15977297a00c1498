// The whole router over real sockets and gRPC, between a client that says exact bytes and workers that do as told.
#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/testing/router_fixture.h"

namespace tandem::router {
namespace {

namespace json = boost::json;
using B = ByteTokenizer;

json::value Delta(const std::string& event) { return json::parse(event).at("choices").at(0).at("delta"); }
std::string ContentOf(const std::vector<std::string>& events) {
  std::string content;
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const json::value chunk = json::parse(event);
    if (!chunk.as_object().contains("choices") || chunk.at("choices").as_array().empty()) continue;
    const json::value& delta = chunk.at("choices").at(0).at("delta");
    if (delta.as_object().contains("content")) content += delta.at("content").as_string().c_str();
  }
  return content;
}

TEST_F(RouterTest, WholeAnswerGoesThroughThePair) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("temperature":0.5,"top_p":0.9,"top_k":7,"seed":11,"max_tokens":20)")));
  const FakeWorker::Request request = decode_->AwaitRequest();
  EXPECT_EQ(request.prompt, (std::vector<uint32_t>{B::kBos, B::kUser, 'h', 'i', B::kAssistant, B::kThinkEnd}));
  EXPECT_EQ(request.head.prefill_address(), kBootstrap);
  EXPECT_EQ(request.head.num_prompt_tokens(), 6u);
  EXPECT_EQ(request.head.sampling().temperature(), 0.5f);
  EXPECT_EQ(request.head.sampling().top_p(), 0.9f);
  EXPECT_EQ(request.head.sampling().top_k(), 7);
  EXPECT_EQ(request.head.sampling().seed(), 11u);
  EXPECT_EQ(request.head.stopping().max_new_tokens(), 20u);
  ASSERT_EQ(request.head.stopping().stop_token_ids_size(), 1);
  EXPECT_EQ(request.head.stopping().stop_token_ids(0), B::kEos);
  EXPECT_GT(request.head.remaining_time_us(), 0u);

  decode_->SendTokens(request.key, 0, B::Bytes("hel"));
  decode_->SendTokens(request.key, 3, {'l', 'o', B::kEos}, proto::FINISH_REASON_STOP);
  decode_->SendEnded(request.key);
  const RawClient::Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 200);
  const json::value body = json::parse(response.body);
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(body.at("model"), "m");
  EXPECT_EQ(body.at("choices").at(0).at("message"), json::parse(R"({"role":"assistant","content":"hello"})"));
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(body.at("usage"), json::parse(R"({"prompt_tokens":6,"completion_tokens":6,"total_tokens":12})"));
}

TEST_F(RouterTest, StreamHasRoleDeltasFinishUsageAndDone) {
  StartPair();
  decode_->AnswerEverything({'a', 0xc3, 0xa9, B::kEos}, proto::FINISH_REASON_STOP);
  const RawClient::Response response = Ask(R"("stream":true,"stream_options":{"include_usage":true})");
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(absl::StrContains(response.head, "text/event-stream"));
  const std::vector<std::string> events = Events(response.body);
  ASSERT_EQ(events.size(), 6u) << response.body;
  EXPECT_EQ(Delta(events[0]), json::parse(R"({"role":"assistant","content":""})"));
  EXPECT_EQ(Delta(events[1]), json::parse(R"({"content":"a"})"));
  EXPECT_EQ(Delta(events[2]), json::parse(R"({"content":"é"})")) << "half a character is no delta";
  EXPECT_EQ(json::parse(events[3]).at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(json::parse(events[4]).at("usage").at("completion_tokens"), 4);
  EXPECT_EQ(events[5], "[DONE]");
}

// Bytes of every width as tokens of one byte, up to four a message. What the token limit cuts inside a character ends
// with one U+FFFD; nothing else is lost or added.
TEST_F(RouterTest, CharactersSplitOverTokensAndMessagesArriveWhole) {
  StartPair();
  const std::vector<std::string> characters = {"한",   "글",      "漢", "é",  "a", " ", "👨‍👩‍👧",
                                               "🙂", "e\u0301", "\n", "\"", "\\"};
  std::mt19937 random(6);
  for (int round = 0; round < 60; ++round) {
    std::string text;
    for (uint32_t i = 0, end = 1 + random() % 20; i < end; ++i) text += characters[random() % characters.size()];
    const bool is_cut = round % 3 == 0;
    const std::string sent = is_cut ? text + std::string("글").substr(0, 1 + random() % 2) : text;
    RawClient client(port());
    client.Send(PostChat(ChatBody(absl::StrCat(R"("stream":true,"max_tokens":)", sent.size()))));
    const FakeWorker::Request request = decode_->AwaitRequest();
    const std::vector<uint32_t> tokens = B::Bytes(sent);
    for (size_t begin = 0; begin < tokens.size();) {
      const size_t end = std::min(begin + 1 + random() % 4, tokens.size());
      decode_->SendTokens(request.key, static_cast<int>(begin), {tokens.begin() + begin, tokens.begin() + end},
                          end == tokens.size() ? proto::FINISH_REASON_LENGTH : proto::FINISH_REASON_UNSPECIFIED);
      begin = end;
    }
    decode_->SendEnded(request.key);
    const std::string content = ContentOf(Events(client.ReadResponse().body));
    EXPECT_EQ(content, is_cut ? text + "\xef\xbf\xbd" : text);
  }
}

TEST_F(RouterTest, ThinkingComesAsReasoningContent) {
  StartPair();
  decode_->AnswerEverything({'w', 'h', 'y', B::kThinkEnd, '4', B::kEos}, proto::FINISH_REASON_STOP);
  const RawClient::Response response = Ask(R"("chat_template_kwargs":{"thinking":true})");
  const json::value body = json::parse(response.body);
  EXPECT_EQ(body.at("choices").at(0).at("message").at("reasoning_content"), "why");
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content"), "4");
  EXPECT_EQ(body.at("usage").at("completion_tokens_details").at("reasoning_tokens"), 4);
}

TEST_F(RouterTest, ReadyOnlyWhileAPairIsUsable) {
  prefill_ =
      std::make_unique<FakeWorker>(FakeWorker::Options{.role = WorkerRole::kPrefill, .bootstrap_address = kBootstrap});
  decode_ = std::make_unique<FakeWorker>(FakeWorker::Options{.role = WorkerRole::kDecode});
  StartShard();
  ASSERT_TRUE(decode_->AwaitPrefillSet(1)) << "decode hears whom it may be paired with";
  RawClient client(port());
  client.Send(Get("/readyz"));
  const RawClient::Response not_ready = client.ReadResponse();
  EXPECT_EQ(not_ready.status, 503);
  EXPECT_TRUE(absl::StrContains(not_ready.body, "not reported yet")) << not_ready.body;
  client.Send(Get("/health"));
  EXPECT_EQ(client.ReadResponse().status, 200);
  decode_->SendPeerStatus(kBootstrap, true);
  EXPECT_TRUE(AwaitReady());
  decode_->SendPeerStatus(kBootstrap, false, "page_size differs");
  EXPECT_TRUE(AwaitReady(503));
  const RawClient::Response refused = Ask();
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(absl::StrContains(refused.body, "page_size differs")) << refused.body;
  EXPECT_TRUE(absl::StrContains(refused.head, "Retry-After: 2"));
}

TEST_F(RouterTest, StartsWithoutAnyWorkerAndRefusesAtOnce) {
  options_.prefill_workers = {"127.0.0.1:1"};
  options_.decode_workers = {"127.0.0.1:1"};
  StartShard();
  EXPECT_EQ(Ask().status, 503);
  RawClient client(port());
  client.Send(Get("/health"));
  EXPECT_EQ(client.ReadResponse().status, 200);
  client.Send(Get("/v1/models"));
  EXPECT_EQ(client.ReadResponse().status, 200) << "from the router's own knowledge";
}

TEST_F(RouterTest, WorkerOfTheWrongRoleIsNotUsed) {
  prefill_ = std::make_unique<FakeWorker>(FakeWorker::Options{.role = WorkerRole::kPrefill});
  options_.decode_workers = {prefill_->address()};
  StartShard();
  RawClient client(port());
  std::string text;
  const std::string reason = absl::StrCat(prefill_->address(), " is not a decode worker; is it a prefill worker?");
  for (int i = 0; i < 20000 && !absl::StrContains(text, reason); ++i) {
    client.Send(Get("/statusz"));
    text = client.ReadResponse().body;
  }
  EXPECT_TRUE(absl::StrContains(text, reason)) << text;
  EXPECT_EQ(Ask().status, 503);
}

TEST_F(RouterTest, OtherPathsMethodsAndModelsAreRefusedInTheApisWords) {
  StartPair();
  RawClient client(port());
  client.Send(Get("/v1/chat/completions"));
  RawClient::Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 405);
  EXPECT_TRUE(absl::StrContains(response.head, "Allow: POST"));
  client.Send(Get("/nope"));
  response = client.ReadResponse();
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(json::parse(response.body).at("error").at("code"), "unknown_path");
  client.Send(PostChat("{"));
  response = client.ReadResponse();
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(json::parse(response.body).at("error").at("code"), "invalid_json");
  client.Send(PostChat(R"({"model":"x","messages":[{"role":"user","content":"hi"}]})"));
  response = client.ReadResponse();
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(json::parse(response.body).at("error").at("code"), "model_not_found");
  client.Send(Get("/v1/models/m"));
  response = client.ReadResponse();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(json::parse(response.body).at("id"), "m");
  client.Send(Get("/v1/models/x"));
  EXPECT_EQ(client.ReadResponse().status, 404);
}

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

TEST_F(RouterTest, HalfClosedClientIsServed) {
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

TEST_F(RouterTest, StopStringEndsTheAnswerAtOnceAndCancels) {
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

TEST_F(RouterTest, WorkerThatDiesInsideAStreamIsAnErrorInTheStream) {
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

TEST_F(RouterTest, WorkerThatDiesBeforeTheFirstTokenIs503) {
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

TEST_F(RouterTest, RequestThatFoundNoWorkerIsTriedOnceMoreBeforeItsFirstToken) {
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
  for (int i = 0; i < 2; ++i) {
    decode_->SendEnded(decode_->AwaitRequest().key, absl::StatusCode::kUnavailable, "prefill worker is gone");
  }
  EXPECT_EQ(client.ReadResponse().status, 503) << "the second failure is the answer";

  client.Send(PostChat(ChatBody()));
  const FakeWorker::Request begun = decode_->AwaitRequest();
  decode_->SendTokens(begun.key, 0, {'x'});
  decode_->SendEnded(begun.key, absl::StatusCode::kUnavailable, "prefill worker is gone");
  EXPECT_EQ(client.ReadResponse().status, 503) << "not with a token accepted";
}

TEST_F(RouterTest, WorkerThatDiesBeforeTheFirstTokenIsReplacedByAnother) {
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

TEST_F(RouterTest, StreamsThatBreakAreGoneOnWithWhereTheyWereCut) {
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

TEST_F(RouterTest, SilentWorkerIsLeftAlthoughItsStreamIsOpen) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody()));
  decode_->AwaitRequest();
  decode_->SetSilent(true);
  const RawClient::Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 503);
  EXPECT_TRUE(absl::StrContains(response.body, "silent for")) << response.body;
}

TEST_F(RouterTest, WorkerThatComesBackIsUsedAgain) {
  StartPair();
  const std::string port_of_old = absl::StrCat(decode_->port());
  decode_->Kill();
  ASSERT_TRUE(AwaitReady(503));
  decode_.reset();
  decode_ = std::make_unique<FakeWorker>(FakeWorker::Options{.role = WorkerRole::kDecode, .port = port_of_old});
  decode_->ReportUsable(kBootstrap);
  decode_->AnswerEverything({'x', B::kEos}, proto::FINISH_REASON_STOP);
  ASSERT_TRUE(AwaitReady());
  EXPECT_EQ(Ask().status, 200);
}

TEST_F(RouterTest, DrainingWorkerGetsNoNewRequests) {
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

TEST_F(RouterTest, WorkersErrorBecomesTheHttpStatusOfItsCode) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("stream":true)")));
  decode_->SendEnded(decode_->AwaitRequest().key, absl::StatusCode::kDataLoss, "sums disagree after the refetch");
  const RawClient::Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 500);
  EXPECT_EQ(json::parse(response.body).at("error").at("message"), "sums disagree after the refetch");
}

TEST_F(RouterTest, PromptBeyondTheWorkersIsTheSameErrorAsOneBeyondTheContext) {
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

TEST_F(RouterTest, RequestsBeyondTheBoundGet429) {
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

TEST_F(RouterTest, RequestsInLineAreServedInTurnAndCounted) {
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

TEST_F(RouterTest, WhoeverWaitsTooLongInLineGets429) {
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

TEST_F(RouterTest, AFullWorkerIs429WithAdvice) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody()));
  decode_->SendEnded(decode_->AwaitRequest().key, absl::StatusCode::kResourceExhausted,
                     "requests in line: 4, at most 4");
  const RawClient::Response refused = client.ReadResponse();
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(absl::StrContains(refused.head, "Retry-After: ")) << refused.head;
}

TEST_F(RouterTest, LongPromptArrivesWholeInParts) {
  StartPair();
  std::string content;
  for (int i = 0; content.size() < 300'000; ++i) absl::StrAppend(&content, i, " ");
  RawClient client(port());
  client.Send(PostChat(ChatBody("", content)));
  const FakeWorker::Request request = decode_->AwaitRequest();
  ASSERT_EQ(request.prompt.size(), content.size() + 4);
  EXPECT_TRUE(std::equal(content.begin(), content.end(), request.prompt.begin() + 2));
  EXPECT_EQ(request.head.num_prompt_tokens(), request.prompt.size());
}

TEST_F(RouterTest, DeadlineEndsTheRequestWith504) {
  options_.pipeline.request_time_max = absl::Milliseconds(50);
  StartPair();
  EXPECT_EQ(Ask().status, 504);
  EXPECT_EQ(decode_->AwaitCancel().reason(), "deadline");
}

TEST_F(RouterTest, SilentStreamGetsKeepaliveComments) {
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

TEST_F(RouterTest, SlowReaderGetsEverythingAndHoldsUpNobody) {
  options_.pipeline.unsent_bytes_max = 4096;
  StartPair();
  const std::string text(20'000, 'x');
  decode_->AnswerEverything(B::Bytes(text), proto::FINISH_REASON_LENGTH);
  RawClient slow(port(), /*receive_buffer_bytes=*/4096);
  slow.Send(PostChat(ChatBody(absl::StrCat(R"("stream":true,"max_tokens":)", text.size()))));
  EXPECT_GT(AwaitMetricAbove("tandem_router_slow_readers_total{role=\"router\"}", 0), 0);
  decode_->AnswerEverything({'y', B::kEos}, proto::FINISH_REASON_STOP);
  EXPECT_EQ(Ask().status, 200) << "while the slow one has not read a byte";
  const RawClient::Response response = slow.ReadResponse();
  const std::vector<std::string> events = Events(response.body);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(ContentOf(events), text);
}

TEST_F(RouterTest, ManyRequestsAtOnceEachGetTheirOwnAnswer) {
  StartPair();
  constexpr int kNumClients = 40;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kNumClients; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    clients.back()->Send(PostChat(ChatBody(R"("stream":true)", absl::StrCat("q", i))));
  }
  std::vector<FakeWorker::Request> requests;
  for (int i = 0; i < kNumClients; ++i) requests.push_back(decode_->AwaitRequest());
  for (int position = 0; position < 5; ++position) {  // interleaved; each request echoes its own question
    for (const FakeWorker::Request& request : requests) {
      decode_->SendTokens(request.key, position, {request.prompt[2 + position % 2]});
    }
  }
  for (const FakeWorker::Request& request : requests) {
    decode_->SendTokens(request.key, 5, {B::kEos}, proto::FINISH_REASON_STOP);
    decode_->SendEnded(request.key);
  }
  for (int i = 0; i < kNumClients; ++i) {
    const std::string question = absl::StrCat("q", i).substr(0, 2);
    EXPECT_EQ(ContentOf(Events(clients[i]->ReadResponse().body)), question + question + "q");
  }
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0), 0);
}

TEST_F(RouterTest, StatuszShowsTheRequestInFlight) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody()));
  const FakeWorker::Request request = decode_->AwaitRequest();
  RawClient operator_client(port());
  operator_client.Send(Get("/statusz"));
  const std::string text = operator_client.ReadResponse().body;
  EXPECT_TRUE(absl::StrContains(text, "requests in flight: 1")) << text;
  EXPECT_TRUE(absl::StrContains(text, "usable over fake")) << text;
  decode_->SendTokens(request.key, 0, {B::kEos}, proto::FINISH_REASON_STOP);
  decode_->SendEnded(request.key);
  EXPECT_EQ(client.ReadResponse().status, 200);
}

TEST_F(RouterTest, DrainLetsStreamsFinish) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("stream":true)")));
  const FakeWorker::Request request = decode_->AwaitRequest();
  decode_->SendTokens(request.key, 0, B::Bytes("a"));
  client.ReadUntil("\"content\":\"a\"");
  std::thread drain([this] { EXPECT_EQ(shard_->Drain({.grace = absl::Seconds(30)}), absl::OkStatus()); });
  decode_->SendTokens(request.key, 1, {B::kEos}, proto::FINISH_REASON_STOP);
  decode_->SendEnded(request.key);
  EXPECT_TRUE(absl::StrContains(client.ReadToClose(), "[DONE]"));
  drain.join();
}

TEST_F(RouterTest, DrainCanBeWatchedAndTakesNoNewRequests) {
  StartPair();
  RawClient busy(port());
  busy.Send(PostChat(ChatBody()));
  const FakeWorker::Request request = decode_->AwaitRequest();
  std::thread drain([this] { EXPECT_EQ(shard_->Drain({.grace = absl::Seconds(30)}), absl::OkStatus()); });
  const auto ask = [this](const std::string& bytes) {
    RawClient client(port());
    client.Send(bytes);
    return client.ReadResponse();
  };
  RawClient::Response ready = ask(Get("/readyz"));
  for (int i = 0; i < 20000 && ready.status == 200; ++i) ready = ask(Get("/readyz"));
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.body, "draining\n");
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

TEST_F(RouterTest, DrainThatRunsOutSaysSoInTheStream) {
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

TEST_F(RouterTest, DuringTheNoticeItIsNotReadyAndServes) {
  StartPair();
  decode_->AnswerEverything({B::kEos}, proto::FINISH_REASON_STOP);
  std::thread drain(
      [this] { EXPECT_EQ(shard_->Drain({.notice = absl::Hours(1), .grace = absl::Hours(1)}), absl::OkStatus()); });
  EXPECT_TRUE(AwaitReady(503));
  EXPECT_EQ(Ask().status, 200);
  shard_->HurryDrain();
  drain.join();
}

TEST_F(RouterTest, AHurriedDrainTellsEveryClientThoughTheWorkersConfirmNothing) {
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

TEST_F(RouterTest, EachShardIsARouterOfItsOwn) {
  StartPair();
  Shard::Options second_options = options_;
  second_options.instance = "second";
  auto second = Shard::Start(second_options, SharedParts());
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(decode_->AwaitRouters(2));
  EXPECT_EQ(AwaitMetric("tandem_router_usable_pairs{role=\"router\"}", 2), 2);
}

TEST_F(RouterTest, StatuszShowsEveryShard) {
  StartPair();
  Shard::Options second_options = options_;
  second_options.instance = "the-second-shard";
  auto second = Shard::Start(second_options, SharedParts());
  ASSERT_TRUE(second.ok());
  RawClient client(port());
  const absl::Duration deadline = base::RealClock().Now() + RawClient::kPatience;
  std::string text;
  while (!absl::StrContains(text, "router the-second-shard: ready") && base::RealClock().Now() < deadline) {
    client.Send(Get("/statusz"));
    text = client.ReadResponse().body;
  }
  EXPECT_TRUE(absl::StrContains(text, "shard 0 of 2")) << text;
  EXPECT_TRUE(absl::StrContains(text, "router router-under-test: ready")) << text;
  EXPECT_TRUE(absl::StrContains(text, "router the-second-shard: ready")) << text;
}

TEST_F(RouterTest, ReadyOnlyWhileEveryShardIs) {
  StartPair();
  Shard::Options second_options = options_;
  second_options.instance = "second";
  second_options.decode_workers = {"127.0.0.1:1"};
  auto second = Shard::Start(second_options, SharedParts());
  ASSERT_TRUE(second.ok());
  RawClient client(port());
  client.Send(Get("/readyz"));
  const RawClient::Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 503) << "the shard that is asked is ready, the other is not";
  EXPECT_TRUE(absl::StrContains(response.body, "shard 1 of 2: ")) << response.body;
  EXPECT_FALSE(absl::StrContains(response.body, "shard 0 of 2: ")) << response.body;
}

}  // namespace
}  // namespace tandem::router

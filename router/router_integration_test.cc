// The whole router over real sockets and gRPC, between a client that says exact bytes and workers that do as told: what
// answers look like, readiness, and several shards. What clients do to it is client_integration_test.cc's business,
// what workers do worker_loss_integration_test.cc's, sampling and several choices generation_integration_test.cc's.
#include <algorithm>
#include <memory>
#include <random>
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

json::value Delta(const std::string& event) { return json::parse(event).at("choices").at(0).at("delta"); }

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
  EXPECT_EQ(body.at("usage"), json::parse(UsageText(6, 6)));
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

TEST_F(RouterTest, ReadyOnlyWhileAPairIsUsable) {
  prefill_ =
      std::make_unique<FakeWorker>(FakeWorker::Options{.role = WorkerRole::kPrefill, .bootstrap_address = kBootstrap});
  decode_ = std::make_unique<FakeWorker>(FakeWorker::Options{.role = WorkerRole::kDecode});
  StartShard();
  ASSERT_TRUE(decode_->AwaitPrefillSet(1)) << "decode hears whom it may be paired with";
  AwaitPage("/readyz", "not reported yet");  // both are up
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
  const std::string reason = absl::StrCat(prefill_->address(), " is not a decode worker; is it a prefill worker?");
  const std::string text = AwaitPage("/statusz", reason);
  EXPECT_TRUE(absl::StrContains(text, reason)) << text;
  EXPECT_EQ(Ask().status, 503);
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
  const std::string text = AwaitPage("/statusz", "router the-second-shard: ready");
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

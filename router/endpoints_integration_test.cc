// The endpoints beside OpenAI's, over real sockets and gRPC: /generate in every form, aborts, probes, what tools ask.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "boost/asio/post.hpp"
#include "boost/asio/thread_pool.hpp"
#include "boost/json.hpp"
#include "gtest/gtest.h"
#include "router/preparation_threads.h"
#include "router/testing/router_fixture.h"

namespace tandem::router {
namespace {

namespace json = boost::json;
using B = ByteTokenizer;

class EndpointsTest : public RouterTest {
 protected:
  static std::string Post(absl::string_view path, absl::string_view body) {
    return absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(), "\r\n\r\n", body);
  }
  RawClient::Response AskPost(absl::string_view path, absl::string_view body) {
    RawClient client(port());
    client.Send(Post(path, body));
    return client.ReadResponse();
  }
  RawClient::Response AskGet(absl::string_view path) {
    RawClient client(port());
    client.Send(Get(path));
    return client.ReadResponse();
  }
  static json::value ErrorOf(const RawClient::Response& response) { return json::parse(response.body).at("error"); }
};

TEST_F(EndpointsTest, GenerateAnswersInSglangsShape) {
  StartPair();
  decode_->AnswerEverything(B::Bytes("ab"), proto::FINISH_REASON_LENGTH);
  const RawClient::Response response =
      AskPost("/generate", R"({"text":"hi","rid":"mine","sampling_params":{"max_new_tokens":2}})");
  EXPECT_EQ(response.status, 200);
  const json::value body = json::parse(response.body);
  EXPECT_EQ(body.at("text").as_string(), "ab");
  EXPECT_EQ(body.at("output_ids"), json::parse("[97,98]"));
  const json::value& meta = body.at("meta_info");
  EXPECT_EQ(meta.at("id").as_string(), "mine");
  EXPECT_EQ(meta.at("finish_reason"), json::parse(R"({"type":"length","length":2})"));
  EXPECT_EQ(meta.at("prompt_tokens").as_int64(), 3);
  EXPECT_EQ(meta.at("completion_tokens").as_int64(), 2);
  EXPECT_GE(meta.at("e2e_latency").to_number<double>(), 0);
}

TEST_F(EndpointsTest, GenerateStreamsCumulativeTextAndNothingThatIsNoEvent) {
  StartPair();
  decode_->AnswerEverything(B::Bytes("abc"), proto::FINISH_REASON_LENGTH);
  const RawClient::Response response = AskPost(
      "/generate", R"({"input_ids":[1,2],"stream":true,"return_logprob":true,"sampling_params":{"max_new_tokens":3}})");
  EXPECT_EQ(response.status, 200);
  const std::vector<std::string> events = Events(response.body);
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json::value event = json::parse(events[i]);
    const std::string now(event.at("text").as_string());
    EXPECT_TRUE(absl::StartsWith(now, text)) << now;
    EXPECT_EQ(event.at("meta_info").at("completion_tokens").as_int64(),
              static_cast<int64_t>(event.at("output_ids").as_array().size()));
    EXPECT_EQ(event.at("meta_info").at("output_token_logprobs").as_array().size(),
              event.at("output_ids").as_array().size());
    text = now;
  }
  const json::value last = json::parse(events[events.size() - 2]);
  EXPECT_EQ(text, "abc");
  EXPECT_EQ(last.at("output_ids"), json::parse("[97,98,99]"));
  EXPECT_EQ(last.at("meta_info").at("output_token_logprobs"), json::parse("[[-1,97,null],[-2,98,null],[-3,99,null]]"));
}

TEST_F(EndpointsTest, GenerateTakesListsOfPrompts) {
  StartPair();
  decode_->AnswerEverything(B::Bytes("a"), proto::FINISH_REASON_LENGTH);
  const json::value body = json::parse(
      AskPost("/generate", R"({"text":["x","yz"],"rid":"r","sampling_params":{"max_new_tokens":1,"n":2}})").body);
  ASSERT_EQ(body.as_array().size(), 4u);
  EXPECT_EQ(body.at(0).at("meta_info").at("id").as_string(), "r_0");
  EXPECT_EQ(body.at(3).at("meta_info").at("id").as_string(), "r_1");
  EXPECT_EQ(body.at(3).at("meta_info").at("prompt_tokens").as_int64(), 3);
}

TEST_F(EndpointsTest, GenerateRefusesWithTheFieldsPath) {
  StartPair();
  const RawClient::Response response = AskPost("/generate", R"({"text":"x","sampling_params":{"temperature":"hot"}})");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(ErrorOf(response).at("param").as_string(), "sampling_params.temperature");
}

// The form of an answer is compiled on the preparation thread, however short the body: while that thread is busy, the
// loop goes on serving everybody else.
TEST_F(EndpointsTest, NobodyWaitsForTheFormOfAnothersAnswer) {
  StartPair();
  decode_->AnswerEverything(B::Bytes("ab"), proto::FINISH_REASON_LENGTH);
  absl::Notification is_busy, may_go_on;
  boost::asio::post(preparation_.For(0), [&] {
    is_busy.Notify();
    may_go_on.WaitForNotification();
  });
  is_busy.WaitForNotification();
  RawClient constrained(port());
  constrained.Send(Post("/generate", R"({"text":"x","sampling_params":{"regex":"[ab]{2}"}})"));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(AskPost("/generate", R"({"text":"x","sampling_params":{"max_new_tokens":2}})").status, 200);
  }
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 1), 1)
      << "the one that waits for the thread";
  may_go_on.Notify();
  const RawClient::Response response = constrained.ReadResponse();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(json::parse(response.body).at("text").as_string(), "ab");
}

// A huge body takes seconds: those of others wait for each other, everybody else's bodies and forms for none of them.
TEST_F(EndpointsTest, NobodyWaitsForTheHugeBodiesOfOthers) {
  StartPair();
  decode_->AnswerEverything(B::Bytes("ab"), proto::FINISH_REASON_LENGTH);
  constexpr size_t kHuge = PreparationThreads::kHugeBodyBytes + 1;
  absl::Notification is_busy, may_go_on;
  boost::asio::post(preparation_.For(kHuge), [&] {
    is_busy.Notify();
    may_go_on.WaitForNotification();
  });
  is_busy.WaitForNotification();
  const auto tokenize = [](size_t num_bytes) {
    return Post("/tokenize", absl::StrCat(R"({"prompt":")", std::string(num_bytes, 'x'), R"("})"));
  };
  RawClient huge(port());
  ASSERT_TRUE(huge.Send(tokenize(kHuge)));
  RawClient large(port());
  ASSERT_TRUE(large.Send(tokenize(kHuge / 2)));
  EXPECT_EQ(large.ReadResponse().status, 200);
  EXPECT_EQ(AskPost("/generate", R"({"text":"x","sampling_params":{"regex":"[ab]{2}"}})").status, 200);
  may_go_on.Notify();
  EXPECT_EQ(huge.ReadResponse().status, 200);
}

TEST_F(EndpointsTest, AnAbortEndsTheAnswerWhereItStands) {
  StartPair();
  RawClient client(port());
  client.Send(Post("/generate", R"({"text":"x","rid":"mine","stream":true,"sampling_params":{"n":2}})"));
  const FakeWorker::Request request = decode_->AwaitRequest();
  decode_->SendTokens(request.key, 0, B::Bytes("ab"));
  client.ReadUntil("\"ab\"");
  EXPECT_EQ(json::parse(AskPost("/abort_request", R"({"rid":"other"})").body), json::parse(R"({"aborted":0})"));
  EXPECT_EQ(json::parse(AskPost("/abort_request", R"({"rid":"min"})").body), json::parse(R"({"aborted":0})"))
      << "an id is meant whole";
  EXPECT_EQ(json::parse(AskPost("/abort_request", R"({"rid":"mine"})").body), json::parse(R"({"aborted":1})"));
  const std::string rest = client.ReadUntil("data: [DONE]");
  EXPECT_TRUE(absl::StrContains(rest, R"("finish_reason":{"type":"abort")")) << rest;
  EXPECT_TRUE(absl::StrContains(rest, R"("text":"ab")")) << "what was there stays";
  const proto::Cancel cancel = decode_->AwaitCancel();
  EXPECT_EQ(cancel.key().request_id(), request.key.request_id());
  EXPECT_EQ(AwaitMetric("tandem_router_requests_in_flight{role=\"router\"}", 0.0), 0);
}

TEST_F(EndpointsTest, AnAbortNamesOnePromptOrEveryRequest) {
  StartPair();
  RawClient client(port());
  client.Send(Post("/generate", R"({"text":["x","y"],"rid":["first","second"]})"));
  decode_->AwaitRequest();
  const FakeWorker::Request second = decode_->AwaitRequest();
  EXPECT_EQ(json::parse(AskPost("/abort_request", R"({"rid":"first"})").body), json::parse(R"({"aborted":1})"));
  EXPECT_NE(decode_->AwaitCancel().key().request_id(), second.key.request_id());
  EXPECT_EQ(json::parse(AskPost("/abort_request", R"({"abort_all":true})").body), json::parse(R"({"aborted":1})"));
  const json::value body = json::parse(client.ReadResponse().body);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(body.at(i).at("meta_info").at("finish_reason").at("type").as_string(), "abort");
  }
}

TEST_F(EndpointsTest, WhatIsAbortedBeforeItsFirstTokenHasNoTimeToIt) {
  StartPair();
  RawClient client(port());
  client.Send(Post("/generate", R"({"text":"x","rid":"early"})"));
  decode_->AwaitRequest();
  EXPECT_EQ(json::parse(AskPost("/abort_request", R"({"rid":"early"})").body), json::parse(R"({"aborted":1})"));
  EXPECT_EQ(client.ReadResponse().status, 200);
  client.Send(Post("/generate", R"({"text":"x","sampling_params":{"max_new_tokens":1}})"));
  const FakeWorker::Request request = decode_->AwaitRequest();
  decode_->SendTokens(request.key, 0, {'a'}, proto::FINISH_REASON_LENGTH);
  decode_->SendEnded(request.key);
  EXPECT_EQ(client.ReadResponse().status, 200);
  AwaitMetric("tandem_time_to_first_token_seconds_count{role=\"router\"}", 1.0);
}

TEST_F(EndpointsTest, ChatHasIdsAndAbortsToo) {
  StartPair();
  RawClient client(port());
  client.Send(PostChat(ChatBody(R"("rid":"mine")")));
  const FakeWorker::Request request = decode_->AwaitRequest();
  decode_->SendTokens(request.key, 0, B::Bytes("ab"));
  AwaitMetric("tandem_generation_tokens_total{role=\"router\"}", 2.0);
  EXPECT_EQ(json::parse(AskPost("/abort_request", R"({"rid":"mine"})").body), json::parse(R"({"aborted":1})"));
  const json::value body = json::parse(client.ReadResponse().body);
  EXPECT_EQ(body.at("id").as_string(), "mine");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason").as_string(), "abort");
  EXPECT_EQ(body.at("choices").at(0).at("message").at("content").as_string(), "ab");
}

TEST_F(EndpointsTest, AnAbortReachesRequestsOfOtherShards) {
  StartPair();
  options_.instance = "router-under-test/1";
  auto other = Shard::Start(options_, SharedParts());
  ASSERT_TRUE(other.ok()) << other.status();
  RawClient client(port());
  client.Send(Post("/generate", R"({"text":"x","rid":"mine"})"));
  decode_->AwaitRequest();
  RawClient asking((*other)->port());
  asking.Send(Post("/abort_request", R"({"rid":"mine"})"));
  EXPECT_EQ(json::parse(asking.ReadResponse().body), json::parse(R"({"aborted":1})"));
  EXPECT_EQ(json::parse(client.ReadResponse().body).at("meta_info").at("finish_reason").at("type").as_string(),
            "abort");
}

TEST_F(EndpointsTest, HealthGenerateIsARealRequest) {
  StartPair();
  RawClient client(port());
  client.Send(Get("/health_generate"));
  const FakeWorker::Request request = decode_->AwaitRequest();
  EXPECT_EQ(request.prompt, std::vector<uint32_t>{B::kBos});
  EXPECT_EQ(request.head.stopping().max_new_tokens(), 1u);
  decode_->SendTokens(request.key, 0, {'a'}, proto::FINISH_REASON_LENGTH);
  decode_->SendEnded(request.key);
  const RawClient::Response well = client.ReadResponse();
  EXPECT_EQ(well.status, 200);
  EXPECT_EQ(json::parse(well.body), json::parse(R"({"status":"ok"})"));

  client.Send(Get("/health_generate"));
  for (int attempt = 1; attempt <= 2; ++attempt) {
    decode_->SendEnded(decode_->AwaitRequest().key, absl::StatusCode::kInternal, "broken");
  }
  EXPECT_EQ(client.ReadResponse().status, 500);
}

TEST_F(EndpointsTest, ARouteIsToldAndNothingIsSent) {
  StartPair();
  const std::string body = R"({"model":"m","prompt":"hi"})";
  const std::string on_a_thread = absl::StrCat(body, std::string(size_t{64} << 10, ' '));  // too large for the loop
  for (const std::string& asked : {body, on_a_thread}) {
    const RawClient::Response response = AskPost("/debug/route", asked);
    EXPECT_EQ(response.status, 200) << response.body;
    const json::value route = json::parse(response.body);
    EXPECT_EQ(route.at("needs_tokens").as_int64(), 4);
    EXPECT_EQ(route.at("pairs_total").as_int64(), 1);
    EXPECT_EQ(route.at("choice").at("prefill"), route.at("pairs").at(0).at("prefill"));
  }
  EXPECT_EQ(AskPost("/debug/route", R"({"model":"x"})").status, 400);
  EXPECT_EQ(AskGet("/debug/route").status, 405);
  // The first that decode hears of is the first that was meant.
  RawClient client(port());
  client.Send(Post("/v1/completions", R"({"model":"m","prompt":"other","max_tokens":1})"));
  const FakeWorker::Request request = decode_->AwaitRequest();
  EXPECT_EQ(request.prompt.size(), 6u);
  decode_->SendTokens(request.key, 0, {'a'}, proto::FINISH_REASON_LENGTH);
  decode_->SendEnded(request.key);
  EXPECT_EQ(client.ReadResponse().status, 200);
}

TEST_F(EndpointsTest, HealthGenerateFailsWithoutAPair) {
  StartShard();
  EXPECT_EQ(AskGet("/health_generate").status, 503);
  EXPECT_EQ(AskGet("/health").status, 200);
}

TEST_F(EndpointsTest, ToolsAreAnsweredFromTheRoutersOwnKnowledge) {
  context_.model_path = "/models/x";
  StartShard();
  for (const char* path : {"/model_info", "/get_model_info", "/server_info", "/get_server_info"}) {
    const RawClient::Response response = AskGet(path);
    EXPECT_EQ(response.status, 200) << path;
    EXPECT_EQ(json::parse(response.body).at("model_path").as_string(), "/models/x") << path;
  }
  EXPECT_EQ(AskGet("/v1/loads").status, 200);
  EXPECT_EQ(AskGet("/v1/loads?format=prometheus").status, 400);
  EXPECT_EQ(AskGet("/flush_cache").status, 200);
  EXPECT_EQ(AskPost("/flush_cache?timeout=3", "").status, 200);
  EXPECT_EQ(AskPost("/model_info", "").status, 405);
  EXPECT_EQ(AskGet("/generate").status, 405);
}

// A method that nothing takes is answered with those that the path does take: the document's.
TEST_F(EndpointsTest, EveryPathOfTheDocumentIsThereAndTakesItsMethods) {
  StartShard();
  const RawClient::Response response_of_document = AskGet("/openapi.json");
  ASSERT_EQ(response_of_document.status, 200);
  const json::value document = json::parse(response_of_document.body);
  for (const auto& entry : document.at("paths").as_object()) {
    const std::string path(entry.key());
    RawClient client(port());
    client.Send(absl::StrCat("PATCH ", absl::StrReplaceAll(path, {{"{id}", "x"}}), " HTTP/1.1\r\nHost: x\r\n\r\n"));
    const RawClient::Response response = client.ReadResponse();
    ASSERT_EQ(response.status, 405) << path;
    const size_t begin = response.head.find("\r\nAllow: ") + 9;
    const std::string allow = response.head.substr(begin, response.head.find("\r\n", begin) - begin);
    std::set<std::string> taken, said;
    for (const absl::string_view method : absl::StrSplit(allow, ", ")) taken.insert(std::string(method));
    taken.erase("HEAD");
    for (const auto& member : entry.value().as_object()) {
      if (member.key() != "parameters") said.insert(absl::AsciiStrToUpper(std::string(member.key())));
    }
    if (absl::StartsWith(path, "/workers/")) {  // one entry of the table, told apart where it is served
      EXPECT_TRUE(std::includes(taken.begin(), taken.end(), said.begin(), said.end())) << path << ": " << allow;
    } else {
      EXPECT_EQ(taken, said) << path;
    }
  }
}

TEST_F(EndpointsTest, TokenizeAndBackOfSmallAndLargeTexts) {
  StartShard();
  for (const size_t size : {size_t{3}, size_t{1} << 17}) {  // the second by the pool
    const std::string text(size, 'a');
    const RawClient::Response tokenized = AskPost("/tokenize", absl::StrCat(R"({"prompt":")", text, "\"}"));
    ASSERT_EQ(tokenized.status, 200);
    const json::value body = json::parse(tokenized.body);
    EXPECT_EQ(body.at("count").as_int64(), static_cast<int64_t>(size + 1));
    const RawClient::Response back =
        AskPost("/v1/detokenize", absl::StrCat(R"({"tokens":)", json::serialize(body.at("tokens")), "}"));
    ASSERT_EQ(back.status, 200);
    EXPECT_EQ(json::parse(back.body).at("text").as_string(), text);
  }
  EXPECT_EQ(ErrorOf(AskPost("/tokenize", "{}")).at("param").as_string(), "prompt");
  EXPECT_EQ(ErrorOf(AskPost("/abort_request", "{}")).at("param").as_string(), "rid");
}

TEST_F(EndpointsTest, EveryAnswerHasARequestId) {
  StartPair();
  decode_->AnswerEverything(B::Bytes("a"), proto::FINISH_REASON_LENGTH);
  const RawClient::Response own = AskPost("/generate", R"({"text":"x"})");
  const std::string id(json::parse(own.body).at("meta_info").at("id").as_string());
  EXPECT_TRUE(absl::StrContains(own.head, absl::StrCat("\r\nx-request-id: ", id, "\r\n"))) << own.head;
  for (const char* path : {"/v1/chat/completions", "/tokenize", "/health", "/nowhere"}) {
    RawClient client(port());
    client.Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine-7\r\n\r\n"));
    EXPECT_TRUE(absl::StrContains(client.ReadResponse().head, "\r\nx-request-id: mine-7\r\n")) << path;
  }
  RawClient client(port());
  client.Send(absl::StrCat("GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: ", std::string(129, 'x'), "\r\n\r\n"));
  EXPECT_TRUE(absl::StrContains(client.ReadResponse().head, "x-request-id: req-"))
      << "one that is too long is not taken";
}

TEST_F(EndpointsTest, PathsTakeTheKeysOfTheirKind) {
  access_ = AccessControl({"client-key"}, {"admin-key"});
  options_.prefill_workers = {};
  StartShard();
  const auto status = [&](const char* path, const char* key) {
    RawClient client(port());
    client.Send(absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n",
                             *key == '\0' ? "" : absl::StrCat("Authorization: Bearer ", key, "\r\n"), "\r\n"));
    return client.ReadResponse().status;
  };
  for (const char* path : {"/health", "/metrics"}) EXPECT_EQ(status(path, ""), 200) << path;
  EXPECT_EQ(status("/readyz", ""), 503) << "there is no worker, and nobody needs a key to hear it";
  for (const char* path : {"/v1/models", "/model_info", "/server_info"}) {
    EXPECT_EQ(status(path, ""), 401) << path;
    EXPECT_EQ(status(path, "wrong-key"), 401) << path;
    EXPECT_EQ(status(path, "client-key"), 200) << path;
    EXPECT_EQ(status(path, "admin-key"), 200) << path;
  }
  for (const char* path : {"/v1/loads", "/flush_cache", "/statusz"}) {
    EXPECT_EQ(status(path, ""), 401) << path;
    EXPECT_EQ(status(path, "client-key"), 401) << path;
    EXPECT_EQ(status(path, "admin-key"), 200) << path;
  }
  EXPECT_EQ(AskPost("/debug/route", "{}").status, 401);
  const RawClient::Response refused = AskPost("/v1/chat/completions", "{}");
  EXPECT_EQ(refused.status, 401);
  EXPECT_TRUE(absl::StrContains(refused.head, "\r\nWWW-Authenticate: Bearer\r\n"));
  EXPECT_EQ(ErrorOf(refused).at("code").as_string(), "invalid_api_key");
}

TEST_F(EndpointsTest, PagesOfAllowedOriginsMayReadEveryAnswer) {
  access_ = AccessControl({"client-key"}, {});
  cors_ = CorsPolicy({"https://a.example"});
  StartShard();
  const auto ask = [&](absl::string_view method, absl::string_view origin, absl::string_view more = "") {
    RawClient client(port());
    client.Send(absl::StrCat(method, " /v1/chat/completions HTTP/1.1\r\nHost: x\r\nOrigin: ", origin, "\r\n", more,
                             "Content-Length: 0\r\n\r\n"));
    return client.ReadResponse();
  };
  constexpr char kAsk[] = "Access-Control-Request-Method: POST\r\n";
  const RawClient::Response preflight = ask("OPTIONS", "https://a.example", kAsk);
  EXPECT_EQ(preflight.status, 200) << "browsers send no key with it";
  EXPECT_TRUE(absl::StrContains(preflight.head, "Access-Control-Allow-Origin: https://a.example\r\n"));
  EXPECT_TRUE(absl::StrContains(preflight.head, "Access-Control-Allow-Methods: POST\r\n"));
  EXPECT_EQ(ask("OPTIONS", "https://b.example", kAsk).status, 405);
  const RawClient::Response refused = ask("POST", "https://a.example");
  EXPECT_EQ(refused.status, 401);
  EXPECT_TRUE(absl::StrContains(refused.head, "Access-Control-Allow-Origin: https://a.example\r\n"))
      << "a page may read why it was refused";
  EXPECT_FALSE(absl::StrContains(ask("POST", "https://b.example").head, "Access-Control-Allow-Origin"));
}

}  // namespace
}  // namespace tandem::router

#include "router/testing/router_fixture.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "boost/json.hpp"

namespace tandem::router {

RouterTest::RouterTest() {
  context_.tokenizer = &tokenizer_;
  context_.facts.vocab_size = ByteTokenizer::kNumIds;
  context_.facts.context_length = 1 << 20;
  context_.facts.bos_token_id = ByteTokenizer::kBos;
  context_.facts.eos_token_ids = {ByteTokenizer::kEos};
  context_.served_model_name = "m";
  context_.context_length = 1 << 20;
  options_.instance = "router-under-test";
  options_.host = "127.0.0.1";
  options_.link_times.silence_max = RawClient::kPatience;  // a busy test machine is no silent worker
}

void RouterTest::StartShard() {
  if (prefill_ != nullptr) options_.prefill_workers = {prefill_->address()};
  if (decode_ != nullptr) options_.decode_workers = {decode_->address()};
  auto shard = Shard::Start(options_, SharedParts());
  ASSERT_TRUE(shard.ok()) << shard.status();
  shard_ = *std::move(shard);
}

void RouterTest::StartPair() {
  prefill_ =
      std::make_unique<FakeWorker>(FakeWorker::Options{.role = WorkerRole::kPrefill, .bootstrap_address = kBootstrap});
  decode_ = std::make_unique<FakeWorker>(FakeWorker::Options{.role = WorkerRole::kDecode});
  decode_->ReportUsable(kBootstrap);
  StartShard();
  ASSERT_TRUE(AwaitReady());
}

bool RouterTest::AwaitReady(int status) {
  const absl::Duration deadline = base::RealClock().Now() + RawClient::kPatience;
  while (base::RealClock().Now() < deadline) {
    RawClient client(port());  // a drain closes connections that ask nothing
    client.Send(Get("/readyz"));
    if (client.ReadResponse().status == status) return true;
  }
  return false;
}

std::string RouterTest::ChatBody(absl::string_view members, absl::string_view content) {
  return absl::StrCat(R"({"model":"m","messages":[{"role":"user","content":")", content, R"("}])",
                      members.empty() ? "" : ",", members, "}");
}

namespace {

std::string Post(absl::string_view path, absl::string_view body) {
  return absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n",
                      "Content-Length: ", body.size(), "\r\n\r\n", body);
}

}  // namespace

std::string RouterTest::PostChat(absl::string_view body) { return Post("/v1/chat/completions", body); }

std::string RouterTest::PostCompletion(absl::string_view body) { return Post("/v1/completions", body); }

std::string RouterTest::Get(absl::string_view path) {
  return absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: x\r\n\r\n");
}

RawClient::Response RouterTest::Ask(absl::string_view members) {
  RawClient client(port());
  client.Send(PostChat(ChatBody(members)));
  return client.ReadResponse();
}

RawClient::Response RouterTest::AskCompletion(absl::string_view members) {
  RawClient client(port());
  client.Send(PostCompletion(absl::StrCat(R"({"model":"m",)", members, "}")));
  return client.ReadResponse();
}

std::string RouterTest::UsageText(int prompt_tokens, int completion_tokens) {
  return absl::StrCat(R"({"prompt_tokens":)", prompt_tokens, R"(,"completion_tokens":)", completion_tokens,
                      R"(,"total_tokens":)", prompt_tokens + completion_tokens,
                      R"(,"prompt_tokens_details":{"cached_tokens":0},)",
                      R"("completion_tokens_details":{"reasoning_tokens":0},"reasoning_tokens":0})");
}

std::vector<std::string> RouterTest::Events(const std::string& body) {
  std::vector<std::string> events;
  for (absl::string_view event : absl::StrSplit(body, "\n\n", absl::SkipEmpty())) {
    if (absl::ConsumePrefix(&event, "data: ")) events.emplace_back(event);
  }
  return events;
}

std::string RouterTest::ContentOf(const std::vector<std::string>& events) {
  std::string content;
  for (const std::string& event : events) {
    if (event == "[DONE]") continue;
    const boost::json::value chunk = boost::json::parse(event);
    if (!chunk.as_object().contains("choices") || chunk.at("choices").as_array().empty()) continue;
    const boost::json::value& delta = chunk.at("choices").at(0).at("delta");
    if (delta.as_object().contains("content")) content += delta.at("content").as_string().c_str();
  }
  return content;
}

std::string RouterTest::AwaitPage(absl::string_view path, absl::string_view text) {
  const absl::Duration deadline = base::RealClock().Now() + RawClient::kPatience;
  RawClient client(port());
  std::string body;
  while (!absl::StrContains(body, text) && base::RealClock().Now() < deadline) {
    client.Send(Get(path));
    body = client.ReadResponse().body;
  }
  return body;
}

double RouterTest::AwaitMetric(const std::string& series, const std::function<bool(double)>& is_right) {
  const absl::Duration deadline = base::RealClock().Now() + RawClient::kPatience;
  RawClient client(port());
  double value = -1;
  while (base::RealClock().Now() < deadline) {
    client.Send(Get("/metrics"));
    for (absl::string_view line : absl::StrSplit(client.ReadResponse().body, '\n')) {
      if (absl::ConsumePrefix(&line, absl::StrCat(series, " "))) value = std::atof(std::string(line).c_str());
    }
    if (is_right(value)) break;
  }
  return value;
}

double RouterTest::AwaitMetric(const std::string& series, double value) {
  return AwaitMetric(series, [value](double seen) { return seen == value; });
}

double RouterTest::AwaitMetricAbove(const std::string& series, double value) {
  return AwaitMetric(series, [value](double seen) { return seen > value; });
}

}  // namespace tandem::router

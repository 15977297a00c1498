// Proves that a run measures what happened: a server whose every event comes at a known time of an injected clock, and
// the outcomes hold exactly those times. Also the order, the bound on concurrency, the plan and the interruption.
#include "tools/bench_serving/load.h"

#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/bench_serving/metrics.h"
#include "tools/bench_serving/scripted_server.h"

namespace tandem::bench_serving {
namespace {

std::string TextEvent(absl::string_view text) {
  return absl::StrCat(R"({"choices":[{"index":0,"text":")", text, R"("}]})");
}

std::string UsageEvent(int num_tokens) {
  return absl::StrCat(R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":)", num_tokens, "}}");
}

class LoadTest : public testing::Test {
 protected:
  LoadTest() : server_(io_context_), client_(io_context_, clock_, {.host = "127.0.0.1", .port = server_.port()}, {}) {
    EXPECT_TRUE(client_.Resolve().ok());
    flags_.backend = Backend::kCompletions;
  }

  void Start(int num_requests, std::vector<absl::Duration> arrivals = {}) {
    for (int i = 0; i < num_requests; ++i) {
      requests_.push_back({.text = absl::StrCat("prompt ", i), .prompt_len = 3, .output_len = 2});
    }
    arrivals.resize(num_requests);
    load_.emplace(io_context_, client_, clock_, flags_, "m", requests_, std::move(arrivals));
    load_->Start([this] { has_ended_ = true; });
  }
  // Says the event at a time of its own, and waits until the client has read it.
  void Say(ScriptedServer::Connection& connection, absl::string_view text, int at_ms) {
    SetTime(at_ms);
    const int64_t tokens = load_->counts().num_tokens;
    connection.WriteEvent(TextEvent(text));
    RunUntil(io_context_, [&] { return load_->counts().num_tokens == tokens + 1; });
  }
  void End(ScriptedServer::Connection& connection, int num_tokens, int at_ms) {
    SetTime(at_ms);
    const size_t ended = load_->counts().num_ended;
    connection.WriteEvent(UsageEvent(num_tokens));
    connection.WriteEvent("[DONE]");
    connection.EndStream();
    RunUntil(io_context_, [&] { return load_->counts().num_ended == ended + 1; });
  }
  void SetTime(int ms) { clock_.Advance(load_->start() + absl::Milliseconds(ms) - clock_.Now()); }
  std::unique_ptr<ScriptedServer::Connection> AcceptStream(absl::string_view prompt) {
    auto connection = server_.Accept();
    TakeRequest(*connection, prompt);
    return connection;
  }
  void TakeRequest(ScriptedServer::Connection& connection, absl::string_view prompt) {
    const std::string request = connection.ReadRequest();
    EXPECT_TRUE(absl::StrContains(request, prompt)) << request;
    connection.StartStream();
  }

  boost::asio::io_context io_context_;
  base::FakeClock clock_;
  ScriptedServer server_;
  HttpClient client_;
  Flags flags_;
  std::vector<BenchRequest> requests_;
  std::optional<Load> load_;
  bool has_ended_ = false;
};

TEST_F(LoadTest, TimesAreThoseAtWhichTheServerSpoke) {
  Start(1);
  const auto connection = AcceptStream("prompt 0");
  Say(*connection, "a", 120);
  Say(*connection, "b", 150);
  Say(*connection, "c", 170);
  End(*connection, 4, 200);
  ASSERT_TRUE(has_ended_);
  const std::vector<Outcome> outcomes = load_->TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 1u);
  ASSERT_TRUE(outcomes[0].status.ok()) << outcomes[0].status;
  const BenchMetrics metrics = CalculateMetrics(outcomes, load_->start(), absl::Milliseconds(250), {},
                                                [](absl::string_view text) { return static_cast<int>(text.size()); });
  EXPECT_EQ(metrics.ttft_ms.mean, 120);
  EXPECT_EQ(metrics.e2e_ms.mean, 200);
  EXPECT_EQ(metrics.itl_ms.mean, 25) << "gaps of 30 and 20";
  EXPECT_EQ(metrics.itl_ms.max, 30);
  EXPECT_DOUBLE_EQ(metrics.tpot_ms.mean, 80.0 / 3) << "four tokens by the server's count";
  EXPECT_EQ(metrics.total_input, 3);
  EXPECT_EQ(metrics.total_output, 4);
  EXPECT_EQ(metrics.total_output_retokenized, 3);
  EXPECT_EQ(metrics.num_other_length, 1) << "two were asked for";
  EXPECT_EQ(metrics.output_throughput, 16);
  EXPECT_EQ(metrics.concurrency, 0.8);
}

TEST_F(LoadTest, BeyondTheBoundRequestsWaitInOrderAndTheirClocksStartWhenTheyAreSent) {
  flags_.max_concurrency = 2;
  Start(4);
  const auto first = AcceptStream("prompt 0");
  const auto second = AcceptStream("prompt 1");
  EXPECT_EQ(load_->counts().num_sent, 2u);
  Say(*second, "x", 10);
  End(*second, 1, 40);
  EXPECT_EQ(load_->counts().num_sent, 3u);
  TakeRequest(*second, "prompt 2");
  Say(*second, "x", 100);
  End(*second, 1, 110);
  TakeRequest(*second, "prompt 3");
  Say(*first, "x", 120);
  End(*first, 1, 130);
  EXPECT_FALSE(has_ended_);
  Say(*second, "x", 150);
  End(*second, 1, 160);
  EXPECT_TRUE(has_ended_);
  const std::vector<Outcome> outcomes = load_->TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 4u);
  EXPECT_EQ(outcomes[1].start - load_->start(), absl::Milliseconds(40));
  EXPECT_EQ(outcomes[1].answer.chunks[0].at - outcomes[1].start, absl::Milliseconds(60));
  EXPECT_EQ(outcomes[3].start - load_->start(), absl::Milliseconds(110));
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.lateness, absl::ZeroDuration());
}

TEST_F(LoadTest, FailuresEndTheirRequestAloneAndAreToldByKind) {
  flags_.max_concurrency = 1;
  Start(5);
  auto connection = server_.Accept();
  connection->ReadRequest();
  connection->Respond(503, "no pair");
  RunUntil(io_context_, [&] { return load_->counts().num_failed == 1; });
  connection->ReadRequest();
  connection->StartStream();
  connection->WriteEvent(R"({"error":{"message":"lost","code":500}})");
  connection = server_.Accept();  // the client has left the broken stream
  connection->ReadRequest();
  connection->StartStream();
  connection->WriteEvent(TextEvent("a"));
  connection->EndStream();
  RunUntil(io_context_, [&] { return load_->counts().num_failed == 3; });
  connection->ReadRequest();
  connection->StartStream();
  connection->WriteEvent("[DONE]");
  connection->EndStream();
  RunUntil(io_context_, [&] { return load_->counts().num_failed == 4; });
  TakeRequest(*connection, "prompt 4");
  Say(*connection, "a", 10);
  End(*connection, 2, 20);
  ASSERT_TRUE(has_ended_);
  const std::vector<Outcome> outcomes = load_->TakeOutcomes();
  const BenchMetrics metrics =
      CalculateMetrics(outcomes, load_->start(), absl::Seconds(1), {}, [](absl::string_view) { return 0; });
  EXPECT_EQ(metrics.completed, 1);
  std::map<std::string, int> kinds;
  for (const auto& [kind, failures] : metrics.failures) kinds[kind] = failures.count;
  EXPECT_EQ(
      kinds,
      (std::map<std::string, int>{
          {"answer without text", 1}, {"error event 500", 1}, {"status 503", 1}, {"stream ended without [DONE]", 1}}));
  EXPECT_EQ(metrics.failures.at("status 503").first, "no pair");
}

TEST_F(LoadTest, AnInterruptionKeepsWhatThereIs) {
  flags_.max_concurrency = 2;
  Start(10);
  const auto first = AcceptStream("prompt 0");
  const auto second = AcceptStream("prompt 1");
  Say(*first, "a", 10);
  End(*first, 2, 20);
  Say(*second, "b", 30);
  load_->Interrupt();
  EXPECT_TRUE(has_ended_);
  EXPECT_EQ(load_->counts().num_sent, 3u) << "the seven others were never sent";
  const std::vector<Outcome> outcomes = load_->TakeOutcomes();
  ASSERT_EQ(outcomes.size(), 3u);
  EXPECT_TRUE(outcomes[0].status.ok());
  EXPECT_EQ(outcomes[1].status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(outcomes[2].status.code(), absl::StatusCode::kCancelled);
}

TEST(DrawArrivalsTest, AreAPoissonProcessOfTheRateFromZeroOn) {
  constexpr size_t kRequests = 20'000;
  const std::vector<absl::Duration> arrivals = DrawArrivals(kRequests, 50, 3);
  EXPECT_EQ(arrivals[0], absl::ZeroDuration());
  EXPECT_NEAR(absl::ToDoubleSeconds(arrivals.back()), kRequests / 50.0, 0.03 * kRequests / 50);
  double squares = 0;
  for (size_t i = 1; i < kRequests; ++i) {
    ASSERT_GE(arrivals[i], arrivals[i - 1]);
    const double gap = absl::ToDoubleSeconds(arrivals[i] - arrivals[i - 1]) * 50;
    squares += gap * gap;
  }
  EXPECT_NEAR(squares / kRequests, 2, 0.1) << "the second moment of an exponential gap of mean 1";
  EXPECT_EQ(DrawArrivals(100, 50, 3), DrawArrivals(100, 50, 3));
  EXPECT_NE(DrawArrivals(100, 50, 3), DrawArrivals(100, 50, 4));
  for (const absl::Duration arrival : DrawArrivals(10, INFINITY, 3)) EXPECT_EQ(arrival, absl::ZeroDuration());
}

}  // namespace
}  // namespace tandem::bench_serving

// Proves the arithmetic on vectors worked by hand (percentiles: numpy.percentile's values, written beside them).
// tests/e2e/bench_serving_test.py holds whole reports to NumPy.
#include "tools/bench_serving/metrics.h"

#include <gtest/gtest.h>

namespace tandem::bench_serving {
namespace {

int Letters(absl::string_view text) { return static_cast<int>(text.size()); }

absl::Duration Ms(double milliseconds) { return absl::Milliseconds(milliseconds); }

Outcome Answered(double start_ms, const std::vector<std::pair<double, int>>& chunks, double end_ms, int output_len) {
  Outcome outcome;
  outcome.start = Ms(start_ms);
  outcome.end = Ms(end_ms);
  outcome.prompt_len = 10;
  outcome.output_len_asked = output_len;
  outcome.answer.completion_tokens = output_len;
  for (const auto& [at_ms, num_tokens] : chunks) {
    outcome.answer.text += "x";
    outcome.answer.chunks.push_back(
        {.at = Ms(at_ms), .num_tokens = num_tokens, .text_end = outcome.answer.text.size()});
  }
  return outcome;
}

TEST(SummarizeTest, IsNumpysArithmetic) {
  // numpy: a = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3.5]; mean 3.95, median 3.75, std 2.328626...; percentiles 90, 95, 99
  const Summary summary = Summarize({3, 1, 4, 1, 5, 9, 2, 6, 5, 3.5});
  EXPECT_DOUBLE_EQ(summary.mean, 3.95);
  EXPECT_DOUBLE_EQ(summary.median, 3.75);
  EXPECT_NEAR(summary.std, 2.328626204439004, 1e-12);
  EXPECT_NEAR(summary.p90, 6.3, 1e-12);
  EXPECT_NEAR(summary.p95, 7.65, 1e-12);
  EXPECT_NEAR(summary.p99, 8.73, 1e-12);
  EXPECT_EQ(summary.max, 9);
  const Summary one = Summarize({7});
  EXPECT_EQ(one.mean, 7);
  EXPECT_EQ(one.median, 7);
  EXPECT_EQ(one.p99, 7);
  EXPECT_EQ(one.std, 0);
  EXPECT_EQ(Summarize({}).p99, 0);
}

TEST(CalculateMetricsTest, FollowsItsDefinitions) {
  std::vector<Outcome> outcomes;
  outcomes.push_back(Answered(0, {{100, 1}, {140, 1}, {200, 1}}, 210, 3));
  outcomes.push_back(Answered(500, {{900, 1}, {1000, 2}}, 1500, 3));
  outcomes.push_back(Answered(1500, {{1600, 1}}, 1600, 1));
  const BenchMetrics metrics = CalculateMetrics(outcomes, absl::ZeroDuration(), Ms(2000), {}, Letters);
  EXPECT_EQ(metrics.completed, 3);
  EXPECT_EQ(metrics.total_input, 30);
  EXPECT_EQ(metrics.total_output, 7);
  EXPECT_EQ(metrics.total_output_retokenized, 6);
  EXPECT_EQ(metrics.request_throughput, 1.5);
  EXPECT_EQ(metrics.input_throughput, 15);
  EXPECT_EQ(metrics.output_throughput, 3.5);
  EXPECT_EQ(metrics.total_throughput, 18.5);
  EXPECT_DOUBLE_EQ(metrics.ttft_ms.mean, (100 + 400 + 100) / 3.0);
  EXPECT_DOUBLE_EQ(metrics.e2e_ms.mean, (210 + 1000 + 100) / 3.0);
  EXPECT_DOUBLE_EQ(metrics.concurrency, 1310 / 2000.0);
  EXPECT_DOUBLE_EQ(metrics.tpot_ms.mean, (55 + 300) / 2.0) << "an answer of one token has no time per token";
  EXPECT_DOUBLE_EQ(metrics.itl_ms.mean, (40 + 60 + 50 + 50) / 4.0) << "two tokens in a chunk are two equal gaps";
  EXPECT_EQ(metrics.max_output_tokens_per_s, 4) << "second 0 has 4 tokens, second 1 has 3";
  EXPECT_EQ(metrics.max_concurrent_requests, 1) << "the second ends where the third begins";
  EXPECT_EQ(metrics.num_good, 3);
  EXPECT_EQ(metrics.num_other_length, 0);
}

TEST(CalculateMetricsTest, FailuresAreInNoFigureButTheirOwn) {
  std::vector<Outcome> outcomes = {Answered(0, {{100, 1}}, 110, 2), Answered(0, {{1, 1}}, 5000, 9)};
  outcomes[0].output_len_asked = 3;
  outcomes[1].status = absl::UnavailableError("status 503: try: later");
  outcomes.push_back(outcomes[1]);
  outcomes[2].status = absl::UnavailableError("status 503: gone");
  outcomes.push_back(outcomes[1]);
  outcomes[3].status = absl::CancelledError("interrupted");
  const BenchMetrics metrics = CalculateMetrics(outcomes, absl::ZeroDuration(), absl::Seconds(1), {}, Letters);
  EXPECT_EQ(metrics.completed, 1);
  EXPECT_EQ(metrics.total_output, 2);
  EXPECT_EQ(metrics.e2e_ms.max, 110);
  EXPECT_EQ(metrics.num_other_length, 1);
  ASSERT_EQ(metrics.failures.size(), 2u);
  EXPECT_EQ(metrics.failures.at("status 503").count, 2);
  EXPECT_EQ(metrics.failures.at("status 503").first, "try: later");
  EXPECT_EQ(metrics.failures.at("interrupted").count, 1);
}

TEST(CalculateMetricsTest, GoodputCountsWhatKeepsEveryBound) {
  const std::vector<Outcome> outcomes = {Answered(0, {{100, 1}, {150, 1}}, 150, 2),
                                         Answered(0, {{50, 1}, {350, 1}}, 350, 2)};
  const auto good = [&](const GoodputLimits& limits) {
    return CalculateMetrics(outcomes, absl::ZeroDuration(), absl::Seconds(2), limits, Letters).num_good;
  };
  EXPECT_EQ(good({.ttft = Ms(60)}), 1);
  EXPECT_EQ(good({.itl = Ms(60)}), 1);
  EXPECT_EQ(good({.ttft = Ms(60), .itl = Ms(60)}), 0);
  EXPECT_EQ(good({.tpot = Ms(300), .e2e = Ms(350)}), 2);
  EXPECT_EQ(
      CalculateMetrics(outcomes, absl::ZeroDuration(), absl::Seconds(2), {.ttft = Ms(60)}, Letters).request_goodput,
      0.5);
}

TEST(CalculateMetricsTest, NothingAtAllIsZeros) {
  const BenchMetrics metrics = CalculateMetrics({}, absl::ZeroDuration(), absl::ZeroDuration(), {}, Letters);
  EXPECT_EQ(metrics.completed, 0);
  EXPECT_EQ(metrics.request_throughput, 0);
  EXPECT_EQ(metrics.ttft_ms.p99, 0);
  EXPECT_EQ(metrics.max_concurrent_requests, 0);
}

TEST(CalculateMetricsTest, WithoutTheServersCountChunksCountAndAreToldOf) {
  std::vector<Outcome> outcomes = {Answered(0, {{1, 1}, {2, 1}, {3, 1}}, 4, 3)};
  outcomes[0].answer.completion_tokens.reset();
  outcomes[0].answer.prompt_tokens = 12;
  outcomes[0].answer.cached_tokens = 8;
  const BenchMetrics metrics = CalculateMetrics(outcomes, absl::ZeroDuration(), absl::Seconds(1), {}, Letters);
  EXPECT_EQ(metrics.total_output, 3);
  EXPECT_EQ(metrics.num_uncounted, 1);
  EXPECT_EQ(metrics.prompt_tokens_counted, 12);
  EXPECT_EQ(metrics.cached_tokens, 8);
}

TEST(CountTokensOfChunksTest, EachChunkCountsItsOwnTextAndNeverNothing) {
  std::vector<Outcome> outcomes = {Answered(0, {{1, 1}, {2, 1}}, 3, 4)};
  outcomes[0].answer.text = "abcd";
  outcomes[0].answer.chunks[0].text_end = 1;
  outcomes[0].answer.chunks[1].text_end = 4;
  CountTokensOfChunks(Letters, &outcomes);
  EXPECT_EQ(outcomes[0].answer.chunks[0].num_tokens, 1);
  EXPECT_EQ(outcomes[0].answer.chunks[1].num_tokens, 3);
  CountTokensOfChunks([](absl::string_view) { return 0; }, &outcomes);
  EXPECT_EQ(outcomes[0].answer.chunks[1].num_tokens, 1);
}

}  // namespace
}  // namespace tandem::bench_serving

// The exposition text: names, labels, and that unknown words end in the class meant for them.
#include "router/metrics.h"

#include <set>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

TEST(RouterMetricsTest, EverySeriesIsOursAndCarriesTheRole) {
  RouterMetrics metrics;
  metrics.time_to_first_token.Observe(0.1);
  std::istringstream lines(metrics.Expose());
  int num_series = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    ++num_series;
    EXPECT_TRUE(absl::StartsWith(line, "tandem_")) << line;
    EXPECT_TRUE(absl::StrContains(line, "role=\"router\"")) << line;
  }
  EXPECT_GT(num_series, 20);
}

TEST(RouterMetricsTest, RequestsAreCountedByStatus) {
  RouterMetrics metrics;
  metrics.CountRequest(200);
  metrics.CountRequest(499);
  metrics.CountRequest(418);
  EXPECT_EQ(metrics.RequestsByStatus().at(200), 1);
  EXPECT_EQ(metrics.RequestsByStatus().at(503), 0);
  const std::string text = metrics.Expose();
  EXPECT_TRUE(absl::StrContains(text, "tandem_router_requests_total{role=\"router\",code=\"200\"} 1")) << text;
  EXPECT_TRUE(absl::StrContains(text, "tandem_router_requests_total{role=\"router\",code=\"499\"} 1")) << text;
  EXPECT_TRUE(absl::StrContains(text, "tandem_router_requests_total{role=\"router\",code=\"500\"} 1")) << text;
}

TEST(RouterMetricsTest, FinishedAnswersAreLateBeyondTheirLimits) {
  RouterMetrics metrics({.time_to_first_token = absl::Seconds(2), .inter_token_latency = absl::Milliseconds(10)});
  metrics.CountFinished(absl::Seconds(2), absl::Milliseconds(10));
  metrics.CountFinished(absl::Seconds(3), absl::ZeroDuration());
  metrics.CountFinished(absl::Seconds(1), absl::Milliseconds(11));
  metrics.CountFinished(absl::Seconds(4), absl::Milliseconds(12));
  const std::string text = metrics.Expose();
  EXPECT_TRUE(absl::StrContains(text, "tandem_router_finished_prompts_total{role=\"router\"} 4")) << text;
  EXPECT_TRUE(absl::StrContains(text, "late_prompts_total{role=\"router\",limit=\"ttft\"} 2")) << text;
  EXPECT_TRUE(absl::StrContains(text, "late_prompts_total{role=\"router\",limit=\"itl\"} 2")) << text;
}

TEST(RouterMetricsTest, CancelsAreCountedByReason) {
  RouterMetrics metrics;
  EXPECT_EQ(metrics.NumBreaches(), 0);
  metrics.CountCancel("breach of the token stream");
  EXPECT_EQ(metrics.NumBreaches(), 1);
  metrics.CountCancel("client left");
  metrics.CountCancel("breach of the token stream");
  metrics.CountCancel("router is shutting down");
  const std::string text = metrics.Expose();
  EXPECT_TRUE(absl::StrContains(text, "reason=\"client left\"} 1")) << text;
  EXPECT_TRUE(absl::StrContains(text, "reason=\"breach of the token stream\"} 2")) << text;
  EXPECT_TRUE(absl::StrContains(text, "reason=\"other\"} 1")) << text;
}

}  // namespace
}  // namespace tandem::router

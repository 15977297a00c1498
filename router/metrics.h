// Every metric of the router, with its help text in metrics.cc. Counters never fall; gauges are zero at rest.
// Tested by metrics_test.cc.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "base/metrics.h"

namespace tandem::router {

// Shared by all shards; every method may be called from any thread.
class RouterMetrics final {
 public:
  // Beyond which an answer counts as late.
  struct Limits {
    absl::Duration time_to_first_token = absl::Seconds(5);
    absl::Duration inter_token_latency = absl::Milliseconds(100);  // of an answer on average
  };

  RouterMetrics() : RouterMetrics(Limits()) {}
  explicit RouterMetrics(const Limits& limits);
  RouterMetrics(const RouterMetrics&) = delete;
  RouterMetrics& operator=(const RouterMetrics&) = delete;

  // By the HTTP status it was answered with; in-band errors count as the status they would have had, clients that left
  // as 499.
  void CountRequest(int http_status);
  // The answers to a prompt that have ended well. inter_token_latency: their mean; zero where there was none.
  void CountFinished(absl::Duration time_to_first_token, absl::Duration inter_token_latency);
  // What the HTTP server refused by itself.
  void CountHttpRefusal(int http_status);
  // reason: one of the few words that RequestState gives, e.g. "client left".
  void CountCancel(const std::string& reason);
  std::string Expose() const { return metrics_.Expose(); }
  // HTTP status -> requests that ended with it.
  std::map<int, int64_t> RequestsByStatus() const;
  // Cancels because a worker contradicted itself; must stay zero.
  int64_t NumBreaches() const;

 private:
  const Limits limits_;
  base::Metrics metrics_;

 public:
  prometheus::Gauge& requests_in_flight;
  prometheus::Gauge& requests_waiting;
  prometheus::Gauge& connections;
  prometheus::Gauge& body_bytes;
  prometheus::Gauge& requests_without_worker;
  prometheus::Counter& failovers_without_tokens;
  prometheus::Counter& failovers_with_tokens;
  prometheus::Counter& routed_cached_tokens;
  prometheus::Counter& routed_forgone_tokens;
  prometheus::Counter& prompt_tokens;
  prometheus::Counter& generation_tokens;
  prometheus::Counter& empty_answers;
  prometheus::Counter& unconfirmed_releases;
  prometheus::Counter& slow_readers;
  prometheus::Counter& stalled_clients;
  prometheus::Histogram& time_to_first_token;
  prometheus::Histogram& inter_token_latency;
  prometheus::Histogram& e2e_request_latency;
  prometheus::Histogram& admission_wait;
  prometheus::Histogram& preparation_time;
  prometheus::Gauge& prefill_workers_up;
  prometheus::Gauge& decode_workers_up;
  prometheus::Gauge& usable_pairs;
  prometheus::Gauge& discovery_sources_failing;
  prometheus::Counter& streams_lost;
  prometheus::Counter& streams_reattached;
  prometheus::Counter& workers_lost;
  prometheus::Counter& ejections;
  prometheus::Counter& loop_stalls;
  prometheus::Counter& finished_answers;
  prometheus::Counter& late_first_tokens;
  prometheus::Counter& slow_answers;
  prometheus::Gauge& prefill_pool_short;
  prometheus::Gauge& decode_pool_short;
  prometheus::Gauge& prefill_workers_suggested;
  prometheus::Gauge& decode_workers_suggested;

 private:
  std::map<int, prometheus::Counter*> chat_requests_;  // by HTTP status
  std::map<int, prometheus::Counter*> http_refusals_;
  std::map<std::string, prometheus::Counter*> cancels_;
};

}  // namespace tandem::router

#include "router/metrics.h"

namespace tandem::router {
namespace {

constexpr int kStatuses[] = {200, 400, 404, 413, 429, 499, 500, 503, 504};
constexpr int kRefusalStatuses[] = {400, 408, 413, 415, 417, 431, 501, 503};
constexpr char kBreach[] = "breach of the token stream";  // a worker contradicted itself: never, unless it is broken
constexpr const char* kCancelReasons[] = {"client left", "stop string",    "deadline", "abort",
                                          kBreach,       "sibling failed", "other"};

constexpr char kLateHelp[] =
    "Of these, those whose first token took longer than process.pool_shortage.ttft_limit, or whose further tokens took "
    "longer on average than process.pool_shortage.itl_limit, by limit.";
constexpr char kShortHelp[] = "1 where the pool has too few workers for its load (docs/operations.md), else 0.";
constexpr char kSuggestedHelp[] = "Workers that the pool had better have, for whoever scales it; nothing is done.";

}  // namespace

RouterMetrics::RouterMetrics(const Limits& limits)
    : limits_(limits),
      metrics_("router"),
      requests_in_flight(metrics_.AddGauge("tandem_router_requests_in_flight",
                                           "Requests for answers admitted and not yet released by their workers.")),
      requests_waiting(
          metrics_.AddGauge("tandem_router_requests_waiting", "Requests for answers in line for a place in flight.")),
      connections(metrics_.AddGauge("tandem_router_connections", "Open client connections.")),
      body_bytes(metrics_.AddGauge("tandem_router_body_bytes",
                                   "Bytes of request bodies that are being read or not yet prepared.")),
      requests_without_worker(
          metrics_.AddGauge("tandem_router_requests_without_worker",
                            "Prompts that wait for workers: theirs have failed, or may be back in a moment.")),
      failovers_without_tokens(metrics_.AddCounter("tandem_router_failovers_total",
                                                   "Prompts that went on elsewhere after their workers had failed.",
                                                   {{"had_tokens", "no"}})),
      failovers_with_tokens(metrics_.AddCounter("tandem_router_failovers_total",
                                                "Prompts that went on elsewhere after their workers had failed.",
                                                {{"had_tokens", "yes"}})),
      routed_cached_tokens(metrics_.AddCounter(
          "tandem_router_routed_cached_tokens_total",
          "Prompt tokens that the chosen prefill worker had cached, by what it had told when it was chosen.")),
      routed_forgone_tokens(
          metrics_.AddCounter("tandem_router_routed_forgone_tokens_total",
                              "Prompt tokens more that another prefill worker of a usable pair had cached: what other "
                              "costs outweighed.")),
      prompt_tokens(metrics_.AddCounter("tandem_prompt_tokens_total", "Prompt tokens of admitted requests.")),
      generation_tokens(metrics_.AddCounter("tandem_generation_tokens_total", "Generated tokens accepted.")),
      empty_answers(metrics_.AddCounter("tandem_router_empty_answers_total",
                                        "Answers that ended well without a character of content.")),
      unconfirmed_releases(
          metrics_.AddCounter("tandem_router_unconfirmed_releases_total",
                              "Requests given up without their worker's confirmation that it holds nothing of them.")),
      slow_readers(
          metrics_.AddCounter("tandem_router_slow_readers_total", "Times a stream waited for its client to read.")),
      stalled_clients(metrics_.AddCounter("tandem_router_stalled_clients_total",
                                          "Clients given up because they took no byte of their answer for "
                                          "process.http.write_stall_timeout.")),
      time_to_first_token(metrics_.AddHistogram("tandem_time_to_first_token_seconds",
                                                "From a request's last byte to its first token at the router.",
                                                base::LatencyBuckets())),
      inter_token_latency(metrics_.AddHistogram(
          "tandem_inter_token_latency_seconds",
          "Between tokens of one sequence at the router; tokens that came together share their gap.",
          base::LatencyBuckets())),
      e2e_request_latency(metrics_.AddHistogram("tandem_e2e_request_latency_seconds",
                                                "From a request's last byte to the end of its answer.",
                                                base::LatencyBuckets())),
      admission_wait(metrics_.AddHistogram("tandem_router_admission_wait_seconds",
                                           "In line for a place in flight, of the requests that got one.",
                                           base::LatencyBuckets())),
      preparation_time(metrics_.AddHistogram("tandem_router_preparation_seconds",
                                             "Parsing, encoding and tokenising a request.", base::LatencyBuckets())),
      prefill_workers_up(metrics_.AddGauge("tandem_router_workers_up", "Connected workers, counted by every shard.",
                                           {{"worker_role", "prefill"}})),
      decode_workers_up(metrics_.AddGauge("tandem_router_workers_up", "Connected workers, counted by every shard.",
                                          {{"worker_role", "decode"}})),
      usable_pairs(metrics_.AddGauge("tandem_router_usable_pairs",
                                     "Pairs of workers that can take a request, counted by every shard.")),
      discovery_sources_failing(metrics_.AddGauge("tandem_router_discovery_sources_failing",
                                                  "Sources of workers (a file, a name, the API server) that cannot be "
                                                  "read; what they said last is used.")),
      streams_lost(metrics_.AddCounter("tandem_router_streams_lost_total", "Streams to workers that broke.")),
      streams_reattached(metrics_.AddCounter("tandem_router_streams_reattached_total",
                                             "Of these, those after which the same worker was back in time.")),
      workers_lost(metrics_.AddCounter("tandem_router_workers_lost_total",
                                       "Workers that were not back in time, or were restarted; decode: with their "
                                       "requests.")),
      ejections(metrics_.AddCounter("tandem_router_worker_ejections_total",
                                    "Times a worker had failed so often in a row that others were preferred.")),
      loop_stalls(metrics_.AddCounter("tandem_router_loop_stalls_total",
                                      "Times a shard's own loop stood still for longer than its workers may be "
                                      "silent.")),
      finished_answers(
          metrics_.AddCounter("tandem_router_finished_prompts_total", "Prompts whose answers have all ended well.")),
      late_first_tokens(metrics_.AddCounter("tandem_router_late_prompts_total", kLateHelp, {{"limit", "ttft"}})),
      slow_answers(metrics_.AddCounter("tandem_router_late_prompts_total", kLateHelp, {{"limit", "itl"}})),
      prefill_pool_short(metrics_.AddGauge("tandem_router_pool_short", kShortHelp, {{"pool", "prefill"}})),
      decode_pool_short(metrics_.AddGauge("tandem_router_pool_short", kShortHelp, {{"pool", "decode"}})),
      prefill_workers_suggested(
          metrics_.AddGauge("tandem_router_pool_workers_suggested", kSuggestedHelp, {{"pool", "prefill"}})),
      decode_workers_suggested(
          metrics_.AddGauge("tandem_router_pool_workers_suggested", kSuggestedHelp, {{"pool", "decode"}})) {
  for (int status : kStatuses) {
    chat_requests_[status] =
        &metrics_.AddCounter("tandem_router_requests_total", "Requests for answers by the HTTP status of their end.",
                             {{"code", std::to_string(status)}});
  }
  for (int status : kRefusalStatuses) {
    http_refusals_[status] =
        &metrics_.AddCounter("tandem_router_http_refusals_total",
                             "Connections and requests refused before they reached a route, by HTTP status.",
                             {{"code", std::to_string(status)}});
  }
  for (const char* reason : kCancelReasons) {
    cancels_[reason] = &metrics_.AddCounter("tandem_router_cancels_total",
                                            "Prompts and single choices cancelled on their decode worker, by reason.",
                                            {{"reason", reason}});
  }
}

void RouterMetrics::CountRequest(int http_status) {
  const auto it = chat_requests_.find(http_status);
  (it == chat_requests_.end() ? chat_requests_.at(500) : it->second)->Increment();
}

std::map<int, int64_t> RouterMetrics::RequestsByStatus() const {
  std::map<int, int64_t> requests;
  for (const auto& [status, counter] : chat_requests_) requests[status] = static_cast<int64_t>(counter->Value());
  return requests;
}

int64_t RouterMetrics::NumBreaches() const { return static_cast<int64_t>(cancels_.at(kBreach)->Value()); }

void RouterMetrics::CountFinished(absl::Duration time_to_first_token, absl::Duration inter_token_latency) {
  finished_answers.Increment();
  if (time_to_first_token > limits_.time_to_first_token) late_first_tokens.Increment();
  if (inter_token_latency > limits_.inter_token_latency) slow_answers.Increment();
}

void RouterMetrics::CountHttpRefusal(int http_status) {
  const auto it = http_refusals_.find(http_status);
  (it == http_refusals_.end() ? http_refusals_.at(400) : it->second)->Increment();
}

void RouterMetrics::CountCancel(const std::string& reason) {
  const auto it = cancels_.find(reason);
  (it == cancels_.end() ? cancels_.at("other") : it->second)->Increment();
}

}  // namespace tandem::router

#include "router/dashboard/dashboard_state.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "router/dashboard/troubles.h"
#include "router/openai/json_text.h"
#include "router/pair_list.h"
#include "router/pair_picker.h"
#include "router/timeline/timeline_text.h"
#include "router/worker_state.h"

namespace tandem::router {
namespace {

constexpr size_t kReasonBytesMax = 500;

const char* JsonBool(bool value) { return value ? "true" : "false"; }
std::string Reason(absl::string_view text) { return JsonString(CutText(text, kReasonBytesMax)); }

// [1,2,3] of things that write themselves.
template <typename Things, typename Write>
std::string Array(const Things& things, Write write) {
  std::string out = "[";
  for (const auto& thing : things) absl::StrAppend(&out, out.size() == 1 ? "" : ",", write(thing));
  return out + "]";
}

std::string TroubleJson(const Trouble& trouble) {
  return absl::StrCat("{\"severity\":\"", SeverityName(trouble.severity), "\",\"what\":", JsonString(trouble.what),
                      ",\"metric\":\"", trouble.metric, "\",\"runbook\":\"", trouble.runbook, "\"}");
}

// counts: cumulative, one for each bound and one for all.
std::string HistogramJson(const prometheus::Histogram& histogram) {
  const prometheus::ClientMetric::Histogram values = histogram.Collect().histogram;
  std::string bounds, counts;
  for (const prometheus::ClientMetric::Bucket& bucket : values.bucket) {
    absl::StrAppend(&counts, counts.empty() ? "" : ",", bucket.cumulative_count);
    if (&bucket == &values.bucket.back()) continue;  // +Inf
    absl::StrAppendFormat(&bounds, bounds.empty() ? "%.6g" : ",%.6g", bucket.upper_bound);
  }
  return absl::StrCat("{\"bounds_s\":[", bounds, "],\"counts\":[", counts, "]}");
}

struct ListedWorker {
  const WorkerView* worker;
  const char* role;
  size_t num_usable_peers;
};

std::string WorkerJson(const ListedWorker& listed) {
  const WorkerView& worker = *listed.worker;
  const WorkerLoad& load = worker.load;
  return absl::StrCat(
      "{\"role\":\"", listed.role, "\",\"address\":", JsonString(worker.address),
      ",\"instance\":", JsonString(worker.instance), ",\"state\":\"", WorkerStateName(StateOf(worker)),
      "\",\"why\":", Reason(worker.is_up ? "" : worker.detail), ",\"usable_peers\":", listed.num_usable_peers,
      ",\"in_flight\":", worker.requests_in_flight, ",\"running\":", load.running_sequences,
      ",\"waiting\":", load.waiting_requests, ",\"waiting_tokens\":", load.waiting_tokens,
      ",\"kv_pages_used\":", load.kv_pages_total - std::min(load.kv_pages_free, load.kv_pages_total),
      ",\"kv_pages\":", load.kv_pages_total, ",\"prompt_tokens\":", load.prompt_tokens,
      ",\"cached_prompt_tokens\":", load.cached_prompt_tokens, ",\"generated_tokens\":", load.generated_tokens,
      ",\"transferred_kv_bytes\":", load.transferred_kv_bytes, ",\"spec_windows\":", load.spec_windows,
      ",\"spec_accepted_tokens\":", load.spec_accepted_tokens, ",\"hisparse_hits\":", load.hisparse_hits,
      ",\"hisparse_misses\":", load.hisparse_misses, ",\"device_pages_used\":", load.device_pages_used,
      ",\"device_pages\":", load.device_pages_total, "}");
}

// Those that are not up first, then in order; a prefill worker's peers are the decode workers that can use it.
std::string WorkersJson(const ClusterView& view, size_t& num_workers) {
  std::vector<ListedWorker> listed;
  std::map<std::string, size_t> uses;  // bootstrap address -> decode workers that can use it
  for (const DecodeView& decode : view.decodes) {
    if (decode.address.empty() || !decode.is_up) continue;
    for (const auto& [address, peer] : decode.peers) uses[address] += peer.is_usable ? 1 : 0;
  }
  for (const PrefillView& prefill : view.prefills) {
    if (prefill.address.empty()) continue;
    listed.push_back({&prefill, "prefill", prefill.is_up ? uses[prefill.bootstrap_address] : 0});
  }
  for (const DecodeView& decode : view.decodes) {
    if (decode.address.empty()) continue;
    const size_t num_usable = decode.is_up ? std::count_if(decode.peers.begin(), decode.peers.end(),
                                                           [](const auto& peer) { return peer.second.is_usable; })
                                           : 0;
    listed.push_back({&decode, "decode", num_usable});
  }
  num_workers = listed.size();
  std::stable_partition(listed.begin(), listed.end(),
                        [](const ListedWorker& one) { return StateOf(*one.worker) != WorkerState::kUp; });
  listed.resize(std::min(listed.size(), kWorkersInStateMax));
  return Array(listed, WorkerJson);
}

std::string PairJson(const ListedPair& pair) {
  std::string why = pair.peer == nullptr ? "not reported" : pair.peer->detail;
  if (pair.is_usable()) why.clear();
  if (!pair.prefill->is_up) why = "prefill is down";
  if (!pair.decode->is_up) why = "decode is down";
  return absl::StrCat(
      "{\"prefill\":", JsonString(pair.prefill->address), ",\"decode\":", JsonString(pair.decode->address),
      ",\"is_usable\":", JsonBool(pair.is_usable()),
      ",\"lane\":", JsonString(pair.peer == nullptr ? "" : pair.peer->lane),
      absl::StrFormat(",\"lane_bytes_per_second\":%.0f", pair.peer == nullptr ? 0 : pair.peer->lane_bytes_per_second),
      ",\"why\":", Reason(why), "}");
}

std::string StreamJson(const RequestView& request) {
  return absl::StrCat("{\"id\":", JsonString(request.id), ",\"age_ms\":", absl::ToInt64Milliseconds(request.age),
                      ",\"prompt_tokens\":", request.num_prompt_tokens, ",\"generated\":", request.num_generated,
                      ",\"state\":\"",
                      request.is_waiting     ? "in line"
                      : request.pair.empty() ? "in preparation"
                                             : "on workers",
                      "\",\"pair\":", Reason(request.pair), "}");
}

std::string StreamsJson(const std::vector<StatusBoard::Word>& words) {
  std::vector<RequestView> oldest;
  for (const StatusBoard::Word& word : words) oldest.insert(oldest.end(), word.requests.begin(), word.requests.end());
  std::stable_sort(oldest.begin(), oldest.end(),
                   [](const RequestView& a, const RequestView& b) { return a.age > b.age; });
  oldest.resize(std::min(oldest.size(), kStreamsInStateMax));
  return Array(oldest, StreamJson);
}

std::string CountersJson(const RouterMetrics& metrics) {
  std::string by_status;
  for (const auto& [status, count] : metrics.RequestsByStatus()) {
    absl::StrAppend(&by_status, by_status.empty() ? "" : ",", "\"", status, "\":", count);
  }
  const auto whole = [](const prometheus::Counter& counter) { return static_cast<int64_t>(counter.Value()); };
  return absl::StrCat("{\"requests_by_status\":{", by_status, "},\"prompt_tokens\":", whole(metrics.prompt_tokens),
                      ",\"generated_tokens\":", whole(metrics.generation_tokens),
                      ",\"failovers\":", whole(metrics.failovers_without_tokens) + whole(metrics.failovers_with_tokens),
                      ",\"workers_lost\":", whole(metrics.workers_lost), ",\"ejections\":", whole(metrics.ejections),
                      ",\"unconfirmed_releases\":", whole(metrics.unconfirmed_releases), "}");
}

}  // namespace

std::string DashboardState(const DashboardSources& sources) {
  const RouterMetrics& metrics = *sources.metrics;
  const std::vector<StatusBoard::Word> words = sources.board->Words();
  const int num_shards = std::max<int>(1, static_cast<int>(words.size()));
  const auto whole = [](const prometheus::Gauge& gauge) { return static_cast<int>(gauge.Value()); };

  TroubleFacts facts;
  facts.view = sources.view;
  facts.ready = sources.ready;
  facts.is_draining = sources.is_draining;
  facts.num_in_line = whole(metrics.requests_waiting);
  facts.in_line_max = sources.limits.waiting_max * num_shards;
  facts.num_without_worker = whole(metrics.requests_without_worker);
  facts.num_sources_failing = whole(metrics.discovery_sources_failing);
  facts.num_breaches = metrics.NumBreaches();
  facts.num_unconfirmed_releases = static_cast<int64_t>(metrics.unconfirmed_releases.Value());
  for (const StatusBoard::Word& word : words) facts.silences.push_back(sources.now - word.posted_at);
  std::vector<RequestTimeline::Snapshot> failed;
  for (const TimelineStore::Timeline& timeline : sources.timelines->Recent()) {
    RequestTimeline::Snapshot summary = timeline->summary();
    const bool is_new = sources.now - (summary.origin.began_at + summary.end.took) <= kFailureWindow;
    facts.num_recent += is_new ? 1 : 0;
    if (summary.end.http_status < 500) continue;
    if (is_new) facts.failed.push_back({summary.end.http_status, summary.origin.id, summary.end.error});
    if (failed.size() < kFailedInStateMax) failed.push_back(std::move(summary));
  }
  std::vector<RequestTimeline::Snapshot> slow;
  for (const TimelineStore::Timeline& timeline : sources.timelines->Slow(sources.now)) {
    if (slow.size() < kSlowInStateMax) slow.push_back(timeline->summary());
  }
  const auto line = [&](const RequestTimeline::Snapshot& summary) { return TimelineLineJson(summary, sources.now); };

  size_t num_workers = 0, num_pairs = 0;
  const std::string workers = WorkersJson(*sources.view, num_workers);
  const std::string pairs = Array(PairsToLookAt(*sources.view, kPairsInStateMax, &num_pairs), PairJson);
  return absl::StrCat(
      "{\"instance\":", JsonString(sources.instance),
      ",\"time\":", JsonString(absl::FormatTime(absl::RFC3339_sec, sources.wall_time, absl::UTCTimeZone())),
      ",\"is_ready\":", JsonBool(sources.ready.ok() && !sources.is_draining),
      ",\"is_draining\":", JsonBool(sources.is_draining), ",\"troubles\":", Array(TroublesOf(facts), TroubleJson),
      ",\"requests\":{\"in_flight\":", whole(metrics.requests_in_flight),
      ",\"in_flight_max\":", static_cast<int64_t>(sources.limits.in_flight_max) * num_shards,
      ",\"in_line\":", facts.num_in_line, ",\"in_line_max\":", facts.in_line_max,
      ",\"without_worker\":", facts.num_without_worker, ",\"connections\":", whole(metrics.connections),
      "},\"counters\":", CountersJson(metrics), ",\"time_to_first_token\":", HistogramJson(metrics.time_to_first_token),
      ",\"inter_token_latency\":", HistogramJson(metrics.inter_token_latency), ",\"shards\":",
      Array(words,
            [&](const StatusBoard::Word& word) {
              return absl::StrCat("{\"silent_ms\":", absl::ToInt64Milliseconds(sources.now - word.posted_at),
                                  ",\"in_flight\":", word.num_in_flight, ",\"in_line\":", word.num_waiting, "}");
            }),
      ",\"workers_total\":", num_workers, ",\"workers\":", workers,
      ",\"usable_pairs\":", CountUsablePairs(*sources.view), ",\"pairs_total\":", num_pairs, ",\"pairs\":", pairs,
      ",\"streams\":", StreamsJson(words), ",\"slow\":", Array(slow, line), ",\"failed\":", Array(failed, line), "}");
}

}  // namespace tandem::router

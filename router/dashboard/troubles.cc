#include "router/dashboard/troubles.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "router/worker_state.h"

namespace tandem::router {
namespace {

constexpr size_t kWordsBytesMax = 400;  // of an error or a reason
// The alerts' thresholds.
constexpr uint32_t kPromptsInLineMax = 32;
constexpr double kPagesUsedMax = 0.95;
constexpr double kLineFull = 0.9;

constexpr char kNotReady[] = "readyz-of-the-router-is-503";
constexpr char kSuspected[] = "a-worker-is-suspected";
constexpr char kClientsGet429[] = "clients-get-429";
constexpr char kClientsGet503[] = "clients-get-503";
constexpr char kDrain[] = "a-drain-takes-long";

// Things of one kind, of which the first few are named.
class Names final {
 public:
  void Add(std::string name) {
    ++count_;
    if (has_room()) names_.push_back(std::move(name));
  }
  void CountOneMore() { ++count_; }
  bool has_room() const { return names_.size() < kNamedMax; }
  size_t count() const { return count_; }
  std::string Text() const {
    return absl::StrCat(absl::StrJoin(names_, "; "),
                        count_ > names_.size() ? absl::StrCat("; and ", count_ - names_.size(), " more") : "");
  }

 private:
  size_t count_ = 0;
  std::vector<std::string> names_;
};

// "1 of 3 decode workers is", "2 of 3 decode workers are"
std::string Of(size_t count, size_t all, absl::string_view things) {
  return absl::StrCat(count, " of ", all, " ", things, count == 1 ? " is" : " are");
}

std::string NameOf(const WorkerView& worker) {
  return worker.instance.empty() ? worker.address : absl::StrCat(worker.instance, " at ", worker.address);
}

std::string WithReason(const std::string& name, absl::string_view reason) {
  return reason.empty() ? name : absl::StrCat(name, " (", CutText(reason, kWordsBytesMax), ")");
}

bool IsFullOfKv(const WorkerView& worker) {
  const WorkerLoad& load = worker.load;
  return load.kv_pages_total > 0 && static_cast<double>(load.kv_pages_total - load.kv_pages_free) >
                                        kPagesUsedMax * static_cast<double>(load.kv_pages_total);
}

template <typename View>
void AppendPool(std::vector<Trouble>& troubles, const std::vector<View>& workers, absl::string_view role,
                bool is_decode) {
  Names down, ejected, draining, behind, full;
  size_t num_listed = 0;
  for (const View& worker : workers) {
    if (worker.address.empty()) continue;
    ++num_listed;
    switch (StateOf(worker)) {
      case WorkerState::kDown:
        down.Add(WithReason(NameOf(worker), worker.detail));
        continue;
      case WorkerState::kEjected:
        ejected.Add(NameOf(worker));
        break;
      case WorkerState::kDraining:
      case WorkerState::kRemoved:
        draining.Add(absl::StrCat(NameOf(worker), ", ", worker.requests_in_flight, " requests left"));
        break;
      case WorkerState::kUp:
        break;
    }
    if (!is_decode && worker.load.waiting_requests > kPromptsInLineMax) {
      behind.Add(absl::StrCat(NameOf(worker), ", ", worker.load.waiting_requests, " prompts"));
    }
    if (is_decode && IsFullOfKv(worker)) full.Add(NameOf(worker));
  }
  const std::string pool = absl::StrCat(role, " workers");
  const auto add = [&](Severity severity, const Names& names, absl::string_view what, const char* metric,
                       const char* runbook) {
    if (names.count() == 0) return;
    troubles.push_back(
        {severity, absl::StrCat(Of(names.count(), num_listed, pool), " ", what, ": ", names.Text()), metric, runbook});
  };
  add(Severity::kWarning, down, "down", "tandem_router_workers_up", kSuspected);
  add(Severity::kWarning, ejected, "ejected for failing whatever it is given", "tandem_router_worker_ejections_total",
      kSuspected);
  add(Severity::kWarning, behind, "behind: prompts wait", "tandem_num_queue_reqs", kClientsGet429);
  add(Severity::kWarning, full, "almost out of KV pages", "tandem_kv_pages_used", kClientsGet429);
  add(Severity::kNote, draining, "leaving: nothing new goes there", "tandem_router_requests_in_flight", kDrain);
}

// Pairs of two workers that are up, which decode cannot use or has not told of.
void AppendPairs(std::vector<Trouble>& troubles, const ClusterView& view) {
  Names unusable;
  size_t num_pairs = 0;
  for (const DecodeView& decode : view.decodes) {
    if (decode.address.empty() || !decode.is_up) continue;
    for (const PrefillView& prefill : view.prefills) {
      if (prefill.address.empty() || !prefill.is_up) continue;
      ++num_pairs;
      const auto peer = decode.peers.find(prefill.bootstrap_address);
      if (peer != decode.peers.end() && peer->second.is_usable) continue;
      if (!unusable.has_room()) {
        unusable.CountOneMore();
        continue;
      }
      unusable.Add(WithReason(absl::StrCat(NameOf(prefill), " with ", NameOf(decode)),
                              peer == decode.peers.end() ? "not reported yet" : peer->second.detail));
    }
  }
  if (unusable.count() == 0) return;
  troubles.push_back(
      {Severity::kWarning,
       absl::StrCat(Of(unusable.count(), num_pairs, "pairs of workers that are up"), " not usable: ", unusable.Text()),
       "tandem_router_usable_pairs", kNotReady});
}

void AppendShards(std::vector<Trouble>& troubles, const std::vector<absl::Duration>& silences) {
  Names silent;
  for (size_t shard = 0; shard < silences.size(); ++shard) {
    if (silences[shard] <= kShardSilenceMax) continue;
    silent.Add(
        absl::StrCat("shard ", shard, " for ", absl::FormatDuration(absl::Trunc(silences[shard], absl::Seconds(1)))));
  }
  if (silent.count() == 0) return;
  troubles.push_back(
      {Severity::kPage,
       absl::StrCat(Of(silent.count(), silences.size(), "shards of this router"), " silent: ", silent.Text()),
       "tandem_router_loop_stalls_total", "answers-are-slow"});
}

}  // namespace

std::string CutText(absl::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat(text.substr(0, end), "...");
}

const char* SeverityName(Severity severity) {
  switch (severity) {
    case Severity::kPage:
      return "page";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      return "note";
  }
  return "";
}

std::vector<Trouble> TroublesOf(const TroubleFacts& facts) {
  std::vector<Trouble> troubles;
  if (facts.is_draining) {
    troubles.push_back(
        {Severity::kNote, "this router drains: it takes no new requests", "tandem_router_requests_in_flight", kDrain});
  } else if (!facts.ready.ok()) {
    troubles.push_back({Severity::kPage,
                        absl::StrCat("this router cannot serve, every request gets 503: ",
                                     CutText(facts.ready.message(), kWordsBytesMax)),
                        "tandem_router_usable_pairs", kNotReady});
  }
  if (!facts.failed.empty()) {
    const FailedRequest& latest = facts.failed.front();
    const bool is_more_than_one_in_a_hundred = facts.failed.size() * 100 > facts.num_recent;
    troubles.push_back({is_more_than_one_in_a_hundred ? Severity::kPage : Severity::kWarning,
                        absl::StrCat(facts.failed.size(), " of the ", facts.num_recent,
                                     " requests that ended last failed within five minutes; the latest, ",
                                     CutText(latest.id, kWordsBytesMax), ", with ", latest.http_status, ": ",
                                     CutText(latest.error, kWordsBytesMax)),
                        "tandem_router_requests_total", kClientsGet503});
  }
  AppendShards(troubles, facts.silences);
  if (facts.num_breaches > 0) {
    troubles.push_back({Severity::kPage,
                        absl::StrCat("a worker contradicted itself, ", facts.num_breaches,
                                     " times since the start: tokens came twice with other values, left a gap or were "
                                     "too many"),
                        "tandem_router_cancels_total", "an-invariant-is-broken"});
  }
  if (facts.num_without_worker > 0) {
    troubles.push_back(
        {Severity::kWarning,
         absl::StrCat(facts.num_without_worker, facts.num_without_worker == 1 ? " request waits" : " requests wait",
                      " for workers: theirs have failed"),
         "tandem_router_requests_without_worker", kClientsGet503});
  }
  if (facts.in_line_max > 0 && facts.num_in_line >= kLineFull * facts.in_line_max) {
    troubles.push_back({Severity::kWarning,
                        absl::StrCat("the line is full: ", facts.num_in_line, " of ", facts.in_line_max,
                                     " requests wait for a place, more get 429"),
                        "tandem_router_requests_waiting", kClientsGet429});
  }
  AppendPool(troubles, facts.view->prefills, "prefill", false);
  AppendPool(troubles, facts.view->decodes, "decode", true);
  AppendPairs(troubles, *facts.view);
  if (facts.num_sources_failing > 0) {
    troubles.push_back({Severity::kWarning,
                        absl::StrCat(facts.num_sources_failing, facts.num_sources_failing == 1 ? " source" : " sources",
                                     " of workers cannot be read; what was said last is used"),
                        "tandem_router_discovery_sources_failing", kNotReady});
  }
  if (facts.num_unconfirmed_releases > 0) {
    troubles.push_back({Severity::kWarning,
                        absl::StrCat(facts.num_unconfirmed_releases,
                                     " times since the start a worker did not confirm that it holds nothing of a "
                                     "request"),
                        "tandem_router_unconfirmed_releases_total", "tandem_router_unconfirmed_releases_total-rises"});
  }
  std::stable_sort(troubles.begin(), troubles.end(),
                   [](const Trouble& a, const Trouble& b) { return a.severity < b.severity; });
  return troubles;
}

}  // namespace tandem::router

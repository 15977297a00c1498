#include "router/statusz.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "router/pair_list.h"
#include "router/pair_picker.h"
#include "router/worker_state.h"

namespace tandem::router {
namespace {

std::string StateText(const WorkerView& worker) {
  const WorkerState state = StateOf(worker);
  if (!worker.is_up) return absl::StrCat("down: ", worker.detail);
  if (state == WorkerState::kRemoved) return "removed, finishes what runs";
  if (state == WorkerState::kEjected) return "ejected: it failed again and again, others are preferred";
  return WorkerStateName(state);
}

void AppendWorker(std::string& out, const char* role, const WorkerView& worker) {
  if (worker.address.empty()) return;
  absl::StrAppendFormat(&out, "  %-8s %-24s %-20s %016x  in_flight=%d running=%u waiting=%u pages=%u/%u  %s\n", role,
                        worker.address, worker.instance, worker.incarnation, worker.requests_in_flight,
                        worker.load.running_sequences, worker.load.waiting_requests, worker.load.kv_pages_free,
                        worker.load.kv_pages_total, StateText(worker));
}

void AppendPairs(std::string& out, const ClusterView& view) {
  size_t num_pairs = 0;
  const std::vector<ListedPair> pairs = PairsToLookAt(view, kPairsShownMax, &num_pairs);
  for (const ListedPair& pair : pairs) {
    std::string state = "not reported";
    if (pair.peer != nullptr) {
      state = pair.peer->is_usable ? absl::StrFormat("usable over %s, %.1f MB/s", pair.peer->lane,
                                                     pair.peer->lane_bytes_per_second / 1e6)
                                   : absl::StrCat("not usable: ", pair.peer->detail);
    }
    absl::StrAppendFormat(&out, "  %-24s with %-24s %s\n", pair.prefill->address, pair.decode->address, state);
  }
  if (num_pairs > pairs.size()) absl::StrAppend(&out, "  ... and ", num_pairs - pairs.size(), " more\n");
}

}  // namespace

std::string StatuszText(const std::string& instance, const ClusterView& view, const Admission& admission,
                        const std::vector<RequestView>& requests) {
  const absl::Status ready = CheckReady(view);
  std::string out =
      absl::StrCat("router ", instance, ": ", ready.ok() ? "ready" : std::string(ready.message()), "\n\nworkers\n");
  for (const PrefillView& prefill : view.prefills) AppendWorker(out, "prefill", prefill);
  for (const DecodeView& decode : view.decodes) AppendWorker(out, "decode", decode);
  out += "\npairs (prefill with decode)\n";
  AppendPairs(out, view);
  const size_t num_requests = static_cast<size_t>(admission.num_in_flight()) + admission.num_waiting();
  absl::StrAppend(&out, "\nrequests in flight: ", admission.num_in_flight(), " of ", admission.limits().in_flight_max,
                  ", in line: ", admission.num_waiting(), " of ", admission.limits().waiting_max, "\n");
  for (const RequestView& request : requests) {
    absl::StrAppendFormat(&out, "  %s age=%s prompt=%d generated=%d  %s\n", request.id,
                          absl::FormatDuration(request.age), request.num_prompt_tokens, request.num_generated,
                          request.is_waiting     ? "in line"
                          : request.pair.empty() ? "in preparation"
                                                 : request.pair);
  }
  if (num_requests > requests.size()) absl::StrAppend(&out, "  ... and ", num_requests - requests.size(), " more\n");
  return out;
}

}  // namespace tandem::router

#include "router/pair_picker.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace tandem::router {
namespace {

bool TakesRequests(const WorkerView& worker) { return worker.is_up && !worker.is_draining && !worker.is_removed; }

int64_t CountPresent(const auto& workers) {
  return std::count_if(workers.begin(), workers.end(), [](const WorkerView& w) { return !w.address.empty(); });
}

bool IsUsable(const DecodeView& decode, const PrefillView& prefill) {
  if (!TakesRequests(decode) || !TakesRequests(prefill)) return false;
  const auto peer = decode.peers.find(prefill.bootstrap_address);
  return peer != decode.peers.end() && peer->second.is_usable;
}

// The most tokens of one sequence that the worker can hold.
uint64_t TokensMax(const WorkerView& worker) {
  uint64_t tokens = std::numeric_limits<uint64_t>::max();
  if (worker.context_length_max > 0) tokens = std::min<uint64_t>(tokens, worker.context_length_max);
  if (worker.kv_tokens_capacity > 0) tokens = std::min(tokens, worker.kv_tokens_capacity);
  return tokens;
}

void AppendWorkerReason(std::string& out, const char* role, const WorkerView& worker) {
  if (worker.address.empty()) return;
  if (worker.is_removed) {
    absl::StrAppend(&out, "; ", role, " ", worker.address, " is no longer listed");
  } else if (worker.is_draining) {
    absl::StrAppend(&out, "; ", role, " ", worker.address, " is draining");
  } else if (!worker.is_up) {
    absl::StrAppend(&out, "; ", role, " ", worker.address, " is down: ", worker.detail);
  }
}

// Why no pair is usable: names every worker and every pair that could be one.
std::string WhyNone(const ClusterView& view) {
  const auto count = [](const auto& workers) {
    return std::count_if(workers.begin(), workers.end(), [](const WorkerView& w) { return TakesRequests(w); });
  };
  std::string why =
      absl::StrCat("no usable pair: ", count(view.prefills), " of ", CountPresent(view.prefills), " prefill and ",
                   count(view.decodes), " of ", CountPresent(view.decodes), " decode workers are up");
  for (const PrefillView& prefill : view.prefills) AppendWorkerReason(why, "prefill", prefill);
  for (const DecodeView& decode : view.decodes) {
    AppendWorkerReason(why, "decode", decode);
    if (!TakesRequests(decode)) continue;
    for (const PrefillView& prefill : view.prefills) {
      if (!TakesRequests(prefill)) continue;
      const auto peer = decode.peers.find(prefill.bootstrap_address);
      absl::StrAppend(&why, "; decode ", decode.address, " cannot use prefill ", prefill.address, ": ",
                      peer == decode.peers.end() ? "not reported yet" : peer->second.detail);
    }
  }
  return why;
}

}  // namespace

int64_t LoadOf(const WorkerView& worker) {
  const int64_t reported = int64_t{worker.load.running_sequences} + worker.load.waiting_requests;
  return std::max<int64_t>(reported, worker.requests_in_flight);
}

namespace {

bool MostAreEjected(const auto& workers) {
  int64_t balance = 0;
  for (const WorkerView& worker : workers) {
    if (TakesRequests(worker)) balance += worker.is_ejected ? 1 : -1;
  }
  return balance > 0;
}

absl::StatusOr<PairChoice> PickAmong(const ClusterView& view, uint64_t num_tokens, uint64_t turn,
                                     bool with_ejected_prefills, bool with_ejected_decodes) {
  PairChoice choice;
  choice.cost = std::numeric_limits<int64_t>::max();
  uint64_t tokens_max = 0;  // over all usable pairs
  const auto for_each_fitting = [&](auto&& visit) {
    for (size_t d = 0; d < view.decodes.size(); ++d) {
      for (size_t p = 0; p < view.prefills.size(); ++p) {
        if (!IsUsable(view.decodes[d], view.prefills[p])) continue;
        if (view.decodes[d].is_ejected && !with_ejected_decodes) continue;
        if (view.prefills[p].is_ejected && !with_ejected_prefills) continue;
        const uint64_t pair_tokens_max = std::min(TokensMax(view.decodes[d]), TokensMax(view.prefills[p]));
        tokens_max = std::max(tokens_max, pair_tokens_max);
        if (num_tokens > pair_tokens_max) continue;
        visit(static_cast<int>(d), static_cast<int>(p), LoadOf(view.decodes[d]) + LoadOf(view.prefills[p]));
      }
    }
  };
  for_each_fitting([&](int, int, int64_t cost) {
    ++choice.num_candidates;
    if (cost < choice.cost) choice.num_cheapest = 0;
    if (cost <= choice.cost) ++choice.num_cheapest;
    choice.cost = std::min(choice.cost, cost);
  });
  if (choice.num_candidates == 0) {
    if (tokens_max == 0) return absl::UnavailableError(WhyNone(view));
    return absl::InvalidArgumentError(absl::StrCat("request needs room for ", num_tokens,
                                                   " tokens, the largest usable pair of workers holds ", tokens_max));
  }
  int64_t skip = static_cast<int64_t>(turn % static_cast<uint64_t>(choice.num_cheapest));
  for_each_fitting([&](int decode, int prefill, int64_t cost) {
    if (cost != choice.cost || skip-- != 0) return;
    choice.decode = decode;
    choice.prefill = prefill;
  });
  return choice;
}

}  // namespace

absl::StatusOr<PairChoice> PickPair(const ClusterView& view, uint64_t num_tokens, uint64_t turn) {
  absl::StatusOr<PairChoice> choice =
      PickAmong(view, num_tokens, turn, MostAreEjected(view.prefills), MostAreEjected(view.decodes));
  if (choice.ok()) return choice;
  return PickAmong(view, num_tokens, turn, /*with_ejected_prefills=*/true, /*with_ejected_decodes=*/true);
}

int CountUsablePairs(const ClusterView& view) {
  const absl::StatusOr<PairChoice> choice = PickAmong(view, 0, 0, true, true);
  return choice.ok() ? choice->num_candidates : 0;
}

absl::Status CheckReady(const ClusterView& view) { return PickPair(view, 0, 0).status(); }

std::string PairChoice::Explain(const ClusterView& view) const {
  const PrefillView& p = view.prefills[prefill];
  const DecodeView& d = view.decodes[decode];
  return absl::StrCat("prefill ", p.address, " (load ", LoadOf(p), ") with decode ", d.address, " (load ", LoadOf(d),
                      "): cost ", cost, ", one of ", num_cheapest, " cheapest among ", num_candidates, " usable pairs");
}

}  // namespace tandem::router

#include "router/pair_picker.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "proto/page_key.h"
#include "router/worker_state.h"

namespace tandem::router {
namespace {

bool TakesRequests(const WorkerView& worker) { return worker.is_up && !worker.is_draining && !worker.is_removed; }

int64_t CountPresent(const auto& workers) {
  return std::count_if(workers.begin(), workers.end(), [](const WorkerView& w) { return !w.address.empty(); });
}

bool IsLinked(const DecodeView& decode, const PrefillView& prefill) {
  const auto peer = decode.peers.find(prefill.bootstrap_address);
  return peer != decode.peers.end() && peer->second.is_usable;
}

std::string WhyNotLinked(const DecodeView& decode, const PrefillView& prefill) {
  const auto peer = decode.peers.find(prefill.bootstrap_address);
  return peer == decode.peers.end() ? "not reported yet" : peer->second.detail;
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

// Of one that gets nothing.
std::string WhyOut(const WorkerView& worker) {
  const WorkerState state = StateOf(worker);
  const bool has_detail = state == WorkerState::kDown && !worker.detail.empty();
  return absl::StrCat(WorkerStateName(state), has_detail ? ": " : "", has_detail ? worker.detail : "");
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
      absl::StrAppend(&why, "; decode ", decode.address, " cannot use prefill ", prefill.address, ": ",
                      WhyNotLinked(decode, prefill));
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

// What a request more on decode's hands costs, in tokens that prefill could compute meanwhile: a little, so that equal
// prefill workers are told apart by their decode workers' loads and a cached page outweighs two requests.
constexpr int64_t kTokensPerDecodeRequest = 32;
// A token that decode has no room for makes the request wait for others to end.
constexpr int64_t kCostOfLackingToken = 4;

// Tokens that decode has pages for: those that it reported free, but for what this router has sent there since.
int64_t RoomOf(const DecodeView& decode) {
  const int64_t num_pages = static_cast<int64_t>(decode.load.kv_pages_free) - decode.kv_pages_sent;
  return std::max<int64_t>(0, num_pages) * int64_t{proto::kPageKeyTokens};
}

struct Candidate {
  int decode = -1;
  int prefill = -1;
};

class PairSearch {
 public:
  PairSearch(const ClusterView& view, const PairRequest& request, bool with_ejected_prefills, bool with_ejected_decodes)
      : view_(view),
        request_(request),
        with_ejected_prefills_(with_ejected_prefills),
        with_ejected_decodes_(with_ejected_decodes) {
    for (int d = 0; d < static_cast<int>(view.decodes.size()); ++d) {
      for (int p = 0; p < static_cast<int>(view.prefills.size()); ++p) {
        const Candidate pair = {d, p};
        const Bar bar = BarOf(pair);
        if (bar == Bar::kNone || bar == Bar::kSize) tokens_max_ = std::max(tokens_max_, TokensMaxOf(pair));
        if (bar != Bar::kNone) continue;
        candidates_.push_back(pair);
        best_cached_ = std::max(best_cached_, CachedAt(p));
        best_rate_ = std::max(best_rate_, RateOf(pair));
      }
    }
  }

  absl::StatusOr<PairChoice> Pick() const {
    if (candidates_.empty()) {
      if (tokens_max_ == 0) return absl::UnavailableError(WhyNone(view_));
      return absl::InvalidArgumentError(absl::StrCat("request needs room for ", request_.num_tokens,
                                                     " tokens, the largest usable pair of workers holds ",
                                                     tokens_max_));
    }
    const auto count = static_cast<uint64_t>(candidates_.size());
    switch (request_.policy) {
      case PairPolicy::kRoundRobin:
        return Chosen(candidates_[request_.turn % count], 0, static_cast<int>(count));
      case PairPolicy::kRandom:
        return Chosen(candidates_[request_.random % count], 0, static_cast<int>(count));
      case PairPolicy::kPowerOfTwo: {
        // Two different ones where there are two.
        const uint64_t first = (request_.random & 0xFFFFFFFF) % count;
        const uint64_t second = count == 1 ? 0 : (first + 1 + (request_.random >> 32) % (count - 1)) % count;
        return Cheapest({candidates_[first], candidates_[second]});
      }
      case PairPolicy::kConsistentHash:
        return Cheapest(AtTheirPrefill());
      case PairPolicy::kPrefix:
      case PairPolicy::kLeastLoad:
        return Cheapest(candidates_);
    }
    return Cheapest(candidates_);
  }
  PairSurvey Survey(size_t num_max) const {
    PairSurvey survey{.choice = Pick(), .num_pairs = num_candidates()};
    survey.pairs.reserve(candidates_.size());
    for (const Candidate& pair : candidates_) {
      survey.pairs.push_back({pair.prefill, pair.decode, CostOf(pair), {}, CachedAt(pair.prefill)});
      if (request_.policy == PairPolicy::kPrefix) survey.pairs.back().parts = PartsOf(pair);
    }
    const size_t num_listed = std::min(num_max, survey.pairs.size());
    const auto listed_end = survey.pairs.begin() + static_cast<ptrdiff_t>(num_listed);
    std::partial_sort(survey.pairs.begin(), listed_end, survey.pairs.end(),
                      [](const WeighedPair& a, const WeighedPair& b) {
                        return std::tie(a.cost, a.decode, a.prefill) < std::tie(b.cost, b.decode, b.prefill);
                      });
    survey.pairs.resize(num_listed);
    ListExcluded(num_max, &survey);
    return survey;
  }
  int num_candidates() const { return static_cast<int>(candidates_.size()); }

 private:
  // Why a pair cannot have the request.
  enum class Bar { kNone, kWorker, kLink, kSize };

  static bool IsOut(const WorkerView& worker, bool with_ejected) {
    return !TakesRequests(worker) || (worker.is_ejected && !with_ejected);
  }
  bool IsOut(const PrefillView& prefill) const { return IsOut(prefill, with_ejected_prefills_); }
  bool IsOut(const DecodeView& decode) const { return IsOut(decode, with_ejected_decodes_); }
  uint64_t TokensMaxOf(const Candidate& pair) const {
    return std::min(TokensMax(view_.decodes[pair.decode]), TokensMax(view_.prefills[pair.prefill]));
  }
  Bar BarOf(const Candidate& pair) const {
    const PrefillView& prefill = view_.prefills[pair.prefill];
    const DecodeView& decode = view_.decodes[pair.decode];
    if (IsOut(decode) || IsOut(prefill)) return Bar::kWorker;
    if (!IsLinked(decode, prefill)) return Bar::kLink;
    return request_.num_tokens > TokensMaxOf(pair) ? Bar::kSize : Bar::kNone;
  }
  void ListExcluded(size_t num_max, PairSurvey* survey) const {
    const auto add = [&](int prefill, int decode, const auto& why) {
      ++survey->num_excluded;
      if (survey->excluded.size() < num_max) survey->excluded.push_back({prefill, decode, why()});
    };
    const auto is_listed = [&](const auto& worker) { return IsOut(worker) && !worker.address.empty(); };
    for (int p = 0; p < static_cast<int>(view_.prefills.size()); ++p) {
      if (is_listed(view_.prefills[p])) add(p, -1, [&] { return WhyOut(view_.prefills[p]); });
    }
    for (int d = 0; d < static_cast<int>(view_.decodes.size()); ++d) {
      if (is_listed(view_.decodes[d])) add(-1, d, [&] { return WhyOut(view_.decodes[d]); });
    }
    for (int d = 0; d < static_cast<int>(view_.decodes.size()); ++d) {
      for (int p = 0; p < static_cast<int>(view_.prefills.size()); ++p) {
        const Bar bar = BarOf({d, p});
        if (bar == Bar::kLink) {
          add(p, d, [&] { return absl::StrCat("not linked: ", WhyNotLinked(view_.decodes[d], view_.prefills[p])); });
        } else if (bar == Bar::kSize) {
          add(p, d, [&] { return absl::StrCat("too small: holds ", TokensMaxOf({d, p}), " tokens"); });
        }
      }
    }
  }
  int64_t CachedAt(int prefill) const {
    const auto place = static_cast<size_t>(prefill);
    return place < request_.cached_tokens.size() ? request_.cached_tokens[place] : 0;
  }
  double RateOf(const Candidate& pair) const {
    const auto& peers = view_.decodes[pair.decode].peers;
    return peers.at(view_.prefills[pair.prefill].bootstrap_address).lane_bytes_per_second;
  }
  PairCost PartsOf(const Candidate& pair) const {
    const PrefillView& prefill = view_.prefills[pair.prefill];
    const DecodeView& decode = view_.decodes[pair.decode];
    const auto num_tokens = static_cast<int64_t>(request_.num_tokens);
    PairCost cost;
    cost.waiting = std::max(static_cast<int64_t>(prefill.load.waiting_tokens), prefill.prompt_tokens_in_flight);
    cost.uncached = num_tokens - CachedAt(pair.prefill);
    cost.decode_load = kTokensPerDecodeRequest * LoadOf(decode);
    if (decode.load.kv_pages_total > 0) {
      cost.short_room = kCostOfLackingToken * std::max<int64_t>(0, num_tokens - RoomOf(decode));
    }
    // The best lane's pages come while prefill computes; what a slower one adds is a share of the prompt.
    if (const double rate = RateOf(pair); rate > 0 && rate < best_rate_) {
      cost.slow_lane =
          static_cast<int64_t>(static_cast<double>(num_tokens) * std::min(best_rate_ / rate - 1, 16.0) / 16);
    }
    return cost;
  }
  int64_t CostOf(const Candidate& pair) const {
    if (request_.policy == PairPolicy::kPrefix) return PartsOf(pair).total();
    if (request_.policy == PairPolicy::kConsistentHash) return LoadOf(view_.decodes[pair.decode]);
    return LoadOf(view_.decodes[pair.decode]) + LoadOf(view_.prefills[pair.prefill]);
  }
  // Those with the prefill worker that has the highest hash of the routing key and its address.
  std::vector<Candidate> AtTheirPrefill() const {
    std::vector<Candidate> pairs;
    uint64_t highest = 0;
    for (const Candidate& pair : candidates_) {
      const uint64_t hash = proto::RootPageKey(request_.routing_key, view_.prefills[pair.prefill].address);
      if (!pairs.empty() && pairs.front().prefill != pair.prefill && hash < highest) continue;
      if (!pairs.empty() && pairs.front().prefill != pair.prefill) pairs.clear();
      highest = hash;
      pairs.push_back(pair);
    }
    return pairs;
  }
  PairChoice Cheapest(const std::vector<Candidate>& pairs) const {
    int64_t cost = std::numeric_limits<int64_t>::max();
    int num_cheapest = 0;
    for (const Candidate& pair : pairs) {
      const int64_t own = CostOf(pair);
      num_cheapest = own < cost ? 1 : num_cheapest + (own == cost ? 1 : 0);
      cost = std::min(cost, own);
    }
    int64_t skip = static_cast<int64_t>(request_.turn % static_cast<uint64_t>(num_cheapest));
    for (const Candidate& pair : pairs) {
      if (CostOf(pair) == cost && skip-- == 0) return Chosen(pair, cost, num_cheapest);
    }
    return {};
  }
  PairChoice Chosen(const Candidate& pair, int64_t cost, int num_cheapest) const {
    PairChoice choice{.prefill = pair.prefill,
                      .decode = pair.decode,
                      .cost = cost,
                      .num_candidates = num_candidates(),
                      .num_cheapest = num_cheapest,
                      .policy = request_.policy,
                      .cached_tokens = CachedAt(pair.prefill),
                      .best_cached_tokens = best_cached_};
    if (request_.policy == PairPolicy::kPrefix) choice.parts = PartsOf(pair);
    return choice;
  }

  const ClusterView& view_;
  const PairRequest& request_;
  const bool with_ejected_prefills_;
  const bool with_ejected_decodes_;
  std::vector<Candidate> candidates_;
  uint64_t tokens_max_ = 0;  // over all usable pairs
  int64_t best_cached_ = 0;
  double best_rate_ = 0;
};

}  // namespace

PairPolicy PairPolicyOf(absl::string_view name) {
  const auto* const found = std::find(std::begin(kPairPolicyNames), std::end(kPairPolicyNames), name);
  TANDEM_CHECK(found != std::end(kPairPolicyNames), "a policy that the configuration does not allow");
  return static_cast<PairPolicy>(found - std::begin(kPairPolicyNames));
}

namespace {

// Among those that are not ejected, unless that leaves nothing.
PairSearch SearchFor(const ClusterView& view, const PairRequest& request) {
  PairSearch search(view, request, MostAreEjected(view.prefills), MostAreEjected(view.decodes));
  if (search.num_candidates() > 0) return search;
  return PairSearch(view, request, /*with_ejected_prefills=*/true, /*with_ejected_decodes=*/true);
}

}  // namespace

absl::StatusOr<PairChoice> PickPair(const ClusterView& view, const PairRequest& request) {
  return SearchFor(view, request).Pick();
}

PairSurvey SurveyPairs(const ClusterView& view, const PairRequest& request, size_t num_max) {
  return SearchFor(view, request).Survey(num_max);
}

absl::StatusOr<PairChoice> PickPair(const ClusterView& view, uint64_t num_tokens, uint64_t turn) {
  return PickPair(view, {.num_tokens = num_tokens, .turn = turn});
}

int CountUsablePairs(const ClusterView& view) { return PairSearch(view, {}, true, true).num_candidates(); }

absl::Status CheckReady(const ClusterView& view) { return PickPair(view, 0, 0).status(); }

std::string PairChoice::Explain(const ClusterView& view) const {
  const PrefillView& p = view.prefills[prefill];
  const DecodeView& d = view.decodes[decode];
  std::string text = absl::StrCat("prefill ", p.address, " (load ", LoadOf(p), ") with decode ", d.address, " (load ",
                                  LoadOf(d), "): ");
  if (policy == PairPolicy::kRoundRobin || policy == PairPolicy::kRandom) {
    return absl::StrCat(text, kPairPolicyNames[static_cast<int>(policy)], " among ", num_candidates, " usable pairs");
  }
  absl::StrAppend(&text, "cost ", cost);
  if (policy == PairPolicy::kPrefix) {
    absl::StrAppend(&text, " = ", parts.waiting, " waiting + ", parts.uncached, " uncached (", cached_tokens,
                    " cached, at best ", best_cached_tokens, ") + ", parts.decode_load, " decode load + ",
                    parts.short_room, " short room + ", parts.slow_lane, " slow lane");
  }
  return absl::StrCat(text, ", one of ", num_cheapest, " cheapest among ", num_candidates, " usable pairs");
}

}  // namespace tandem::router

// Chooses the prefill and the decode worker of a request, jointly, by one cost. The router alone decides this.
//
// A pure function of a cluster view. A pair is a candidate where both workers are up and not draining, the decode
// worker has reported the peer usable, and both can hold the request. Among candidates the policy decides:
//   prefix           the cost in tokens: those that wait at prefill, those of this prompt that prefill has not cached
//   (by
//                    its own word: prefix_mirror.h), a charge for each request on decode's hands, for room that decode
//                    lacks, and for a lane that is slower than the best. Equal prompts meet where their pages are,
//                    until the line there costs more than computing them elsewhere.
//   least_load       requests on both workers' hands
//   round_robin      every pair in turn
//   random           any pair
//   power_of_two     of two random pairs the one with less load
//   consistent_hash  equal routing keys meet at the same prefill worker, whoever routes them (rendezvous hashing over
//                    workers' addresses); decode by least load
// Among equals turn decides, so that equal pairs are used in rotation and a test can predict the answer.
// Ejected workers are left out, unless that leaves no pair or more than half of a pool is ejected: then it is not they
// who are at fault, and the rest could not carry the load.
// Tested by pair_picker_test.cc and pair_policy_test.cc, against a brute-force search over random views.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "router/cluster_view.h"

namespace tandem::router {

enum class PairPolicy { kPrefix, kLeastLoad, kRoundRobin, kRandom, kPowerOfTwo, kConsistentHash };

// The values of process.policy, by PairPolicy.
inline constexpr const char* kPairPolicyNames[] = {"prefix", "least_load",   "round_robin",
                                                   "random", "power_of_two", "consistent_hash"};
PairPolicy PairPolicyOf(absl::string_view name);  // one of them

struct PairRequest {
  uint64_t num_tokens = 0;  // prompt and at least one generated token
  PairPolicy policy = PairPolicy::kLeastLoad;
  uint64_t turn = 0;
  uint64_t random = 0;                      // of random and power_of_two
  uint64_t routing_key = 0;                 // of consistent_hash
  absl::Span<const int64_t> cached_tokens;  // of the prompt, by place of the prefill worker; none: nothing is cached
};

// Of one pair, in tokens but for least_load and its like, where it is requests.
struct PairCost {
  int64_t waiting = 0;  // prefill's line
  int64_t uncached = 0;
  int64_t decode_load = 0;
  int64_t short_room = 0;
  int64_t slow_lane = 0;
  int64_t total() const { return waiting + uncached + decode_load + short_room + slow_lane; }
  bool operator==(const PairCost&) const = default;
};

struct PairChoice {
  int prefill = -1;  // index into ClusterView::prefills
  int decode = -1;   // index into ClusterView::decodes
  int64_t cost = 0;
  int num_candidates = 0;
  int num_cheapest = 0;
  PairPolicy policy = PairPolicy::kLeastLoad;
  PairCost parts;                  // of prefix
  int64_t cached_tokens = 0;       // of the prompt at the chosen prefill worker ...
  int64_t best_cached_tokens = 0;  // ... and at the one among the candidates that has most

  // One line for the log: which pair, of how many, at what cost.
  std::string Explain(const ClusterView& view) const;
};

// Requests a worker has on its hands: what it reported, or what this router knows it to hold where that is more (a
// report is always a little old).
int64_t LoadOf(const WorkerView& worker);

// UNAVAILABLE with the reason where no pair is usable; INVALID_ARGUMENT where every usable pair is too small for the
// request. O(prefills x decodes).
absl::StatusOr<PairChoice> PickPair(const ClusterView& view, const PairRequest& request);
// By least load.
absl::StatusOr<PairChoice> PickPair(const ClusterView& view, uint64_t num_tokens, uint64_t turn);

// A pair that could have the request.
struct WeighedPair {
  int prefill = -1;
  int decode = -1;
  int64_t cost = 0;  // that the policy compares; of round_robin and random, which compare none, as of least_load
  PairCost parts;    // of prefix
  int64_t cached_tokens = 0;
};

// A worker that gets nothing now, the other place then being -1, or two that do and cannot have this request together.
struct ExcludedPair {
  int prefill = -1;
  int decode = -1;
  std::string why;
};

// PickPair()'s choice, and all that it was made from.
struct PairSurvey {
  absl::StatusOr<PairChoice> choice;
  std::vector<WeighedPair> pairs;  // the cheapest first
  std::vector<ExcludedPair> excluded;
  int num_pairs = 0;  // of which pairs has the first
  int num_excluded = 0;
};

// At most num_max pairs, and as many excluded ones: workers first. O(pairs x log(num_max)).
PairSurvey SurveyPairs(const ClusterView& view, const PairRequest& request, size_t num_max);

int CountUsablePairs(const ClusterView& view);

// OK as soon as PickPair() could answer for a small request.
absl::Status CheckReady(const ClusterView& view);

}  // namespace tandem::router

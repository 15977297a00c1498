// Chooses the prefill and the decode worker of a request, jointly, by one cost. The router alone decides this.
//
// A pure function of a cluster view. A pair is a candidate where both workers are up and not draining, the decode
// worker has reported the peer usable, and both can hold the request. The cost of a pair is the sum of its workers'
// loads; among the cheapest, turn decides, so that equal pairs are used in rotation and a test can predict the answer.
// Ejected workers are left out, unless that leaves no pair or more than half of a pool is ejected: then it is not they
// who are at fault, and the rest could not carry the load.
// Tested by pair_picker_test.cc, against a brute-force search over random views.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "router/cluster_view.h"

namespace tandem::router {

struct PairChoice {
  int prefill = -1;  // index into ClusterView::prefills
  int decode = -1;   // index into ClusterView::decodes
  int64_t cost = 0;
  int num_candidates = 0;
  int num_cheapest = 0;

  // One line for the log: which pair, of how many, at what cost.
  std::string Explain(const ClusterView& view) const;
};

// Requests a worker has on its hands: what it reported, or what this router knows it to hold where that is more (a
// report is always a little old).
int64_t LoadOf(const WorkerView& worker);

// num_tokens: prompt and at least one generated token. UNAVAILABLE with the reason where no pair is usable;
// INVALID_ARGUMENT where every usable pair is too small for the request. O(prefills x decodes).
absl::StatusOr<PairChoice> PickPair(const ClusterView& view, uint64_t num_tokens, uint64_t turn);

int CountUsablePairs(const ClusterView& view);

// OK as soon as PickPair() could answer for a small request.
absl::Status CheckReady(const ClusterView& view);

}  // namespace tandem::router

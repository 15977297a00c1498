// The pairs of workers that need a look, for /statusz and the dashboard: there may be 62,500 of them, and no page of
// theirs is read to its end. Tested by statusz_test.cc and dashboard_state_test.cc.
#pragma once

#include <cstddef>
#include <vector>

#include "router/cluster_view.h"

namespace tandem::router {

struct ListedPair {
  const PrefillView* prefill;
  const DecodeView* decode;
  const PeerView* peer;  // nullptr: decode has not told of it
  bool is_usable() const { return prefill->is_up && decode->is_up && peer != nullptr && peer->is_usable; }
};

// At most num_max, those that are not usable first, then by the rate of their lane, the slowest first; num_pairs: of
// all. O(pairs), whatever num_max. Valid as long as the view is not changed.
std::vector<ListedPair> PairsToLookAt(const ClusterView& view, size_t num_max, size_t* num_pairs);

}  // namespace tandem::router

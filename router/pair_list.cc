#include "router/pair_list.h"

#include <algorithm>

namespace tandem::router {
namespace {

bool NeedsALookMore(const ListedPair& a, const ListedPair& b) {
  if (a.is_usable() != b.is_usable()) return b.is_usable();
  return a.is_usable() && a.peer->lane_bytes_per_second < b.peer->lane_bytes_per_second;
}

}  // namespace

std::vector<ListedPair> PairsToLookAt(const ClusterView& view, size_t num_max, size_t* num_pairs) {
  std::vector<ListedPair> listed;
  *num_pairs = 0;
  for (const DecodeView& decode : view.decodes) {
    if (decode.address.empty()) continue;
    for (const PrefillView& prefill : view.prefills) {
      if (prefill.address.empty()) continue;
      ++*num_pairs;
      const auto peer = decode.peers.find(prefill.bootstrap_address);
      const ListedPair pair = {&prefill, &decode, peer == decode.peers.end() ? nullptr : &peer->second};
      const bool is_full = listed.size() == num_max;
      if (is_full && (num_max == 0 || !NeedsALookMore(pair, listed.back()))) continue;
      if (is_full) listed.pop_back();
      listed.insert(std::upper_bound(listed.begin(), listed.end(), pair, NeedsALookMore), pair);
    }
  }
  return listed;
}

}  // namespace tandem::router

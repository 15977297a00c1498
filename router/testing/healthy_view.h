// For tests of pair choice: a cluster without trouble or load.
#pragma once

#include <string>

#include "router/cluster_view.h"

namespace tandem::router {

// num_prefills x num_decodes workers, all up, every pair usable, no load.
inline ClusterView HealthyView(int num_prefills, int num_decodes) {
  ClusterView view;
  for (int p = 0; p < num_prefills; ++p) {
    PrefillView prefill;
    prefill.address = "p" + std::to_string(p);
    prefill.bootstrap_address = "boot" + std::to_string(p);
    prefill.is_up = true;
    view.prefills.push_back(prefill);
  }
  for (int d = 0; d < num_decodes; ++d) {
    DecodeView decode;
    decode.address = "d" + std::to_string(d);
    decode.is_up = true;
    for (const PrefillView& prefill : view.prefills) decode.peers[prefill.bootstrap_address].is_usable = true;
    view.decodes.push_back(decode);
  }
  return view;
}

}  // namespace tandem::router

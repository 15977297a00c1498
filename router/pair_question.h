// What the picker is asked about one prompt: its size, and what the policy goes by beside the view. The one owner of
// that for requests and for /debug/route, so that both are told of the same pair.
// Tested by router_integration_test.cc and tests/e2e/route_test.py.
#pragma once

#include <cstdint>
#include <vector>

#include "router/cluster.h"
#include "router/pair_picker.h"

namespace tandem::router {

class PairQuestion final {
 public:
  PairQuestion(const GenerateOrder& order, const Cluster& cluster, PairPolicy policy, uint64_t turn);
  PairQuestion(const PairQuestion&) = delete;
  PairQuestion& operator=(const PairQuestion&) = delete;

  const PairRequest& request() const { return request_; }  // as long as the question lives

 private:
  std::vector<int64_t> cached_tokens_;
  PairRequest request_;
};

}  // namespace tandem::router

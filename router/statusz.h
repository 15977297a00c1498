// /statusz: what a shard knows, as tables for people. Tested by statusz_test.cc.
#pragma once

#include <string>
#include <vector>

#include "router/admission.h"
#include "router/cluster_view.h"
#include "router/request_view.h"

namespace tandem::router {

// requests: the oldest of num_in_flight and num_waiting together.
std::string StatuszText(const std::string& instance, const ClusterView& view, const Admission& admission,
                        const std::vector<RequestView>& requests);

inline constexpr size_t kRequestsShownMax = 100;
inline constexpr size_t kPairsShownMax = 200;  // those that are not usable first

}  // namespace tandem::router

// /statusz: what a shard knows, as tables for people. Tested by statusz_test.cc.
#pragma once

#include <string>
#include <vector>

#include "router/cluster_view.h"
#include "router/request_pipeline.h"

namespace tandem::router {

std::string StatuszText(const std::string& instance, const ClusterView& view, const std::vector<RequestView>& requests);

}  // namespace tandem::router

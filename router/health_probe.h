// GET /health_generate: one greedy token through prefill and decode, as any client's request.
//
// It waits in line and takes a place as they do, so it says whether a request that comes now is served. Tested by
// tests/e2e/endpoints_test.py and router_integration_test.cc.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/prepared_request.h"

namespace tandem::router {

inline constexpr absl::Duration kHealthProbeTimeMax = absl::Seconds(20);

absl::StatusOr<PreparedRequest> PrepareHealthProbe(absl::string_view body, const ModelContext& context);

}  // namespace tandem::router

// POST /debug/route: where a request would go now, and why there. Nothing is sent or reserved.
// docs/operations.md has the members. Pure. Tested by route_answer_test.cc and tests/e2e/route_test.py.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/cluster_view.h"
#include "router/pair_picker.h"
#include "router/prepared_request.h"

namespace tandem::router {

inline constexpr size_t kRoutePairsMax = 64;  // listed; and as many of what is excluded

// The body of a chat or of a completion, as its endpoint takes it, of one prompt.
absl::StatusOr<PreparedRequest> PrepareRoute(absl::string_view body, const ModelContext& context);

// One line of JSON.
std::string RouteAnswer(const ClusterView& view, const PairRequest& request);

}  // namespace tandem::router

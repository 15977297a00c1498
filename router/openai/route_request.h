// The body of POST /debug/route: that of a chat or of a completion, told apart by what only one of them has.
// Tested by route_answer_test.cc.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::router {

enum class RouteBodyKind { kChat, kCompletion };

// INVALID_ARGUMENT: no JSON object, or it has messages and prompt, or neither.
absl::StatusOr<RouteBodyKind> RouteBodyKindOf(absl::string_view body);

}  // namespace tandem::router

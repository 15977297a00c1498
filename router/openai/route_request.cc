#include "router/openai/route_request.h"

#include "base/status_macros.h"
#include "boost/json.hpp"
#include "router/openai/api_error.h"
#include "router/openai/json_body.h"
#include "router/openai/json_fields.h"

namespace tandem::router {

absl::StatusOr<RouteBodyKind> RouteBodyKindOf(absl::string_view body) {
  RouteBodyKind kind = RouteBodyKind::kChat;
  RETURN_IF_ERROR(ReadJsonBody(body, [&kind](const boost::json::object& request) {
    const bool has_messages = FindMember(request, "messages") != nullptr;
    const bool has_prompt = FindMember(request, "prompt") != nullptr;
    if (has_messages && has_prompt) return FieldError("messages", "is allowed only where prompt is not sent");
    if (!has_messages && !has_prompt) return FieldError("prompt", "is required, or messages");
    kind = has_messages ? RouteBodyKind::kChat : RouteBodyKind::kCompletion;
    return absl::OkStatus();
  }));
  return kind;
}

}  // namespace tandem::router

#include "router/openai/abort_request.h"

#include <optional>

#include "base/status_macros.h"
#include "boost/json.hpp"
#include "router/openai/api_error.h"
#include "router/openai/generation_fields.h"
#include "router/openai/json_body.h"
#include "router/openai/json_fields.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

absl::Status ReadAbortRequest(const json::object& request, std::string* id) {
  ASSIGN_OR_RETURN(const std::optional<bool> all, OptionalBool(request, "abort_all", "abort_all"));
  const json::value* rid = FindMember(request, "rid");
  const bool names_none = rid == nullptr || (rid->is_string() && rid->get_string().empty());  // "" is SGLang's default
  if (all.value_or(false)) {
    if (names_none) return absl::OkStatus();
    return FieldError("rid", "is allowed only where abort_all is not true");
  }
  if (names_none) return FieldError("rid", "is required, or abort_all true");
  ASSIGN_OR_RETURN(*id, ParseRequestId(rid, "rid"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ParseAbortRequest(absl::string_view body) {
  std::string id;
  RETURN_IF_ERROR(ReadJsonBody(body, [&id](const json::object& request) { return ReadAbortRequest(request, &id); }));
  return id;
}

}  // namespace tandem::router

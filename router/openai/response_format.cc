#include "router/openai/response_format.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/chat/ordered_json.h"
#include "router/openai/api_error.h"
#include "router/openai/json_fields.h"
#include "router/openai/json_span.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

absl::Status CheckSchema(const json::object& format) {
  const std::string path = "response_format.json_schema";
  ASSIGN_OR_RETURN(const json::object* wrapper, OptionalObject(format, "json_schema", path));
  if (wrapper == nullptr) return FieldError(path, "is required");
  ASSIGN_OR_RETURN(const json::object* schema, OptionalObject(*wrapper, "schema", path + ".schema"));
  if (schema == nullptr) return FieldError(path + ".schema", "is required");
  ASSIGN_OR_RETURN(const std::optional<bool> strict, OptionalBool(*wrapper, "strict", path + ".strict"));
  if (!strict.value_or(false)) return absl::OkStatus();
  return WithDetails(FieldError(path + ".strict", "is not supported; only false may be sent"), "",
                     "unsupported_parameter");
}

}  // namespace

absl::StatusOr<std::optional<std::string>> ParseResponseFormat(const json::object& request, absl::string_view body) {
  ASSIGN_OR_RETURN(const json::object* format, OptionalObject(request, "response_format", "response_format"));
  if (format == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(const std::optional<std::string> type, OptionalString(*format, "type", "response_format.type"));
  if (!type.has_value()) return FieldError("response_format.type", "is required");
  if (*type == "text") return std::nullopt;
  if (*type == "json_schema") {
    RETURN_IF_ERROR(CheckSchema(*format));
  } else if (*type != "json_object") {
    return FieldError("response_format.type",
                      absl::StrCat("must be text, json_object or json_schema, got ", Quoted(*type)));
  }
  const std::optional<absl::string_view> text = FindJsonSpan(body, "response_format");
  if (!text.has_value()) return FieldError("response_format", "its name must be written without escapes");
  const absl::StatusOr<OrderedJson> value = ParseOrderedJson(*text);
  if (!value.ok()) return FieldError("response_format", std::string(value.status().message()));
  std::string printed;
  AppendPythonJson(*value, &printed);
  return printed;
}

}  // namespace tandem::router

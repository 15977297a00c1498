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

constexpr char kSchemaField[] = "response_format.json_schema.schema";

// With strict or without, the answer follows the schema.
absl::Status CheckSchema(const json::object& format) {
  const std::string path = "response_format.json_schema";
  ASSIGN_OR_RETURN(const json::object* wrapper, OptionalObject(format, "json_schema", path));
  if (wrapper == nullptr) return FieldError(path, "is required");
  ASSIGN_OR_RETURN(const json::object* schema, OptionalObject(*wrapper, "schema", kSchemaField));
  if (schema == nullptr) return FieldError(kSchemaField, "is required");
  return OptionalBool(*wrapper, "strict", path + ".strict").status();
}

}  // namespace

absl::StatusOr<std::optional<ResponseFormat>> ParseResponseFormat(const json::object& request, absl::string_view body) {
  ASSIGN_OR_RETURN(const json::object* format, OptionalObject(request, "response_format", "response_format"));
  if (format == nullptr) return std::optional<ResponseFormat>();
  ASSIGN_OR_RETURN(const std::optional<std::string> type, OptionalString(*format, "type", "response_format.type"));
  if (!type.has_value()) return FieldError("response_format.type", "is required");
  if (*type == "text") return std::optional<ResponseFormat>();
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
  ResponseFormat parsed;
  AppendPythonJson(*value, &parsed.text);
  if (*type == "json_schema") {
    parsed.field = kSchemaField;
    parsed.schema = *value->Find("json_schema")->Find("schema");
  } else {
    parsed.field = "response_format";
    parsed.schema.kind = OrderedJson::Kind::kObject;
    parsed.schema.keys = {"type"};
    OrderedJson& object = parsed.schema.items.emplace_back();
    object.kind = OrderedJson::Kind::kString;
    object.text = "object";
  }
  return parsed;
}

}  // namespace tandem::router

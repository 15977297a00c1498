#include "router/openai/response_format.h"

#include <utility>

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
    parsed.form.field = kSchemaField;
    parsed.form.schema = *value->Find("json_schema")->Find("schema");
  } else {
    parsed.form.field = "response_format";
    parsed.form.schema.kind = OrderedJson::Kind::kObject;
    parsed.form.schema.keys = {"type"};
    OrderedJson& object = parsed.form.schema.items.emplace_back();
    object.kind = OrderedJson::Kind::kString;
    object.text = "object";
  }
  return parsed;
}

absl::StatusOr<std::optional<AnswerForm>> ParseFormFields(const json::object& object, const std::string& path) {
  constexpr std::pair<const char*, AnswerForm::Kind> kFields[] = {{"json_schema", AnswerForm::Kind::kSchema},
                                                                  {"regex", AnswerForm::Kind::kRegex},
                                                                  {"ebnf", AnswerForm::Kind::kEbnf}};
  std::optional<AnswerForm> form;
  for (const auto& [name, kind] : kFields) {
    const std::string field = path + name;
    ASSIGN_OR_RETURN(std::optional<std::string> text, OptionalString(object, name, field));
    if (!text.has_value()) continue;
    if (form.has_value()) return FieldError(field, absl::StrCat("is allowed only where ", form->field, " is not sent"));
    if (text->empty()) return FieldError(field, "must not be empty");
    if (text->size() > kFormTextBytesMax) {
      return FieldError(field, absl::StrCat("must have at most ", kFormTextBytesMax, " bytes, got ", text->size()));
    }
    form = {.kind = kind, .field = field};
    if (kind != AnswerForm::Kind::kSchema) {
      form->text = *std::move(text);
      continue;
    }
    absl::StatusOr<OrderedJson> schema = ParseOrderedJson(*text);
    if (!schema.ok()) return FieldError(field, std::string(schema.status().message()));
    form->schema = *std::move(schema);
  }
  return form;
}

absl::Status CheckOneForm(const std::optional<ResponseFormat>& response_format, const std::optional<AnswerForm>& form) {
  if (!response_format.has_value() || !form.has_value()) return absl::OkStatus();
  return FieldError(form->field, "is allowed only where response_format is not sent");
}

}  // namespace tandem::router

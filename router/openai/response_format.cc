#include "router/openai/response_format.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
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

constexpr size_t kStructuresMax = 128;
constexpr size_t kTriggersMax = 16;
constexpr size_t kTagBytesMax = 256;

absl::StatusOr<std::string> TagText(const OrderedJson* value, const std::string& field) {
  if (value == nullptr || value->kind != OrderedJson::Kind::kString) return FieldError(field, "must be a string");
  if (value->text.size() <= kTagBytesMax) return value->text;
  return FieldError(field, absl::StrCat("must have at most ", kTagBytesMax, " bytes, got ", value->text.size()));
}

absl::StatusOr<const std::vector<OrderedJson>*> ItemsOf(const OrderedJson& tag, const char* name, size_t num_max,
                                                        const std::string& field) {
  const OrderedJson* list = tag.Find(name);
  if (list == nullptr || list->kind != OrderedJson::Kind::kArray || list->items.empty()) {
    return FieldError(field, "must be an array with at least one element");
  }
  if (list->items.size() <= num_max) return &list->items;
  return FieldError(field, absl::StrCat("must have at most ", num_max, " elements, got ", list->items.size()));
}

// Where one could begin inside of another, or of itself, it would not be plain where a structure begins.
bool MayOverlap(absl::string_view a, absl::string_view b) {
  for (size_t length = 1; length < a.size(); ++length) {
    const absl::string_view end = a.substr(a.size() - length);
    if (absl::StartsWith(b, end) || absl::StartsWith(end, b)) return true;
  }
  return a.size() > b.size() && absl::StartsWith(a, b);
}

// {"structures": [{"begin": "<f>", "schema": {...}, "end": "</f>"}], "triggers": ["<f"]}
absl::StatusOr<AnswerForm> ParseStructuralTag(const OrderedJson& tag, const std::string& field) {
  AnswerForm form = {.kind = AnswerForm::Kind::kStructuralTag, .field = field};
  if (tag.Find("format") != nullptr) {
    return FieldError(field + ".format", "is not supported; structures and triggers are");
  }
  const std::string triggers_field = field + ".triggers";
  ASSIGN_OR_RETURN(const auto* triggers, ItemsOf(tag, "triggers", kTriggersMax, triggers_field));
  for (size_t i = 0; i < triggers->size(); ++i) {
    const std::string at = absl::StrCat(triggers_field, "[", i, "]");
    ASSIGN_OR_RETURN(std::string trigger, TagText(&(*triggers)[i], at));
    if (trigger.empty()) return FieldError(at, "must not be empty");
    form.triggers.push_back(std::move(trigger));
  }
  for (const std::string& a : form.triggers) {
    for (const std::string& b : form.triggers) {
      if (!MayOverlap(a, b) && (&a == &b || a != b)) continue;
      return FieldError(triggers_field, absl::StrCat("must not overlap: ", Quoted(a), " and ", Quoted(b)));
    }
  }
  const std::string structures_field = field + ".structures";
  ASSIGN_OR_RETURN(const auto* structures, ItemsOf(tag, "structures", kStructuresMax, structures_field));
  for (size_t i = 0; i < structures->size(); ++i) {
    const std::string at = absl::StrCat(structures_field, "[", i, "]");
    AnswerForm::Structure& structure = form.structures.emplace_back();
    structure.field = at + ".schema";
    ASSIGN_OR_RETURN(structure.begin, TagText((*structures)[i].Find("begin"), at + ".begin"));
    ASSIGN_OR_RETURN(structure.end, TagText((*structures)[i].Find("end"), at + ".end"));
    const OrderedJson* schema = (*structures)[i].Find("schema");
    if (schema == nullptr) return FieldError(structure.field, "is required");
    structure.schema = *schema;
    const bool is_triggered = std::any_of(form.triggers.begin(), form.triggers.end(), [&](const std::string& trigger) {
      return absl::StartsWith(structure.begin, trigger);
    });
    if (!is_triggered) return FieldError(at + ".begin", "must begin with one of the triggers");
  }
  return form;
}

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
  } else if (*type != "json_object" && *type != "structural_tag") {
    return FieldError("response_format.type",
                      absl::StrCat("must be text, json_object, json_schema or structural_tag, got ", Quoted(*type)));
  }
  const std::optional<absl::string_view> text = FindJsonSpan(body, "response_format");
  if (!text.has_value()) return FieldError("response_format", "its name must be written without escapes");
  const absl::StatusOr<OrderedJson> value = ParseOrderedJson(*text);
  if (!value.ok()) return FieldError("response_format", std::string(value.status().message()));
  ResponseFormat parsed;
  if (*type == "structural_tag") {
    ASSIGN_OR_RETURN(parsed.form, ParseStructuralTag(*value, "response_format"));
    return parsed;
  }
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
                                                                  {"ebnf", AnswerForm::Kind::kEbnf},
                                                                  {"structural_tag", AnswerForm::Kind::kStructuralTag}};
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
    if (kind == AnswerForm::Kind::kRegex || kind == AnswerForm::Kind::kEbnf) {
      form->text = *std::move(text);
      continue;
    }
    absl::StatusOr<OrderedJson> value = ParseOrderedJson(*text);
    if (!value.ok()) return FieldError(field, std::string(value.status().message()));
    if (kind == AnswerForm::Kind::kStructuralTag) {
      ASSIGN_OR_RETURN(form, ParseStructuralTag(*value, field));
    } else {
      form->schema = *std::move(value);
    }
  }
  return form;
}

absl::Status CheckOneForm(const std::optional<ResponseFormat>& response_format, const std::optional<AnswerForm>& form) {
  if (!response_format.has_value() || !form.has_value()) return absl::OkStatus();
  return FieldError(form->field, "is allowed only where response_format is not sent");
}

}  // namespace tandem::router

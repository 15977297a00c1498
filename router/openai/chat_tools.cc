#include "router/openai/chat_tools.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/chat/ordered_json.h"
#include "router/openai/api_error.h"
#include "router/openai/json_fields.h"
#include "router/openai/json_span.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

const char* OrderedKindName(const OrderedJson& value) {
  switch (value.kind) {
    case OrderedJson::Kind::kNull:
      return "null";
    case OrderedJson::Kind::kFalse:
    case OrderedJson::Kind::kTrue:
      return "a boolean";
    case OrderedJson::Kind::kNumber:
      return "a number";
    case OrderedJson::Kind::kString:
      return "a string";
    case OrderedJson::Kind::kArray:
      return "an array";
    case OrderedJson::Kind::kObject:
      return "an object";
  }
  return "unknown";
}

// The member of an object; nullptr where it is absent or null. INVALID_ARGUMENT where it is of another kind.
absl::StatusOr<const OrderedJson*> Member(const OrderedJson& object, const char* name, OrderedJson::Kind kind,
                                          const std::string& path) {
  const OrderedJson* value = object.Find(name);
  if (value == nullptr || value->kind == OrderedJson::Kind::kNull) return nullptr;
  if (value->kind == kind) return value;
  OrderedJson expected;
  expected.kind = kind;
  return FieldError(absl::StrCat(path, ".", name),
                    absl::StrCat("must be ", OrderedKindName(expected), ", got ", OrderedKindName(*value)));
}

absl::Status CheckName(const std::string& name, const std::string& path) {
  const auto is_allowed = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("_-.:/").find(c) != absl::string_view::npos;
  };
  if (name.empty() || name.size() > kToolNameBytesMax || !std::all_of(name.begin(), name.end(), is_allowed)) {
    return FieldError(
        path, absl::StrCat("must have 1 to ", kToolNameBytesMax, " letters, digits, or _ - . : /, got ", Quoted(name)));
  }
  return absl::OkStatus();
}

// What the parsers know of a tool, from its JSON Schema.
absl::StatusOr<std::vector<ToolParameter>> ReadParameters(const OrderedJson& function, const std::string& path) {
  std::vector<ToolParameter> parameters;
  ASSIGN_OR_RETURN(const OrderedJson* schema, Member(function, "parameters", OrderedJson::Kind::kObject, path));
  if (schema == nullptr) return parameters;
  const std::string schema_path = absl::StrCat(path, ".parameters");
  const OrderedJson* type = schema->Find("type");
  if (type != nullptr && type->kind == OrderedJson::Kind::kString && type->text != "object") {
    return FieldError(schema_path + ".type", absl::StrCat("must be \"object\", got ", Quoted(type->text)));
  }
  ASSIGN_OR_RETURN(const OrderedJson* properties,
                   Member(*schema, "properties", OrderedJson::Kind::kObject, schema_path));
  if (properties == nullptr) return parameters;
  for (size_t i = 0; i < properties->keys.size(); ++i) {
    const OrderedJson* of = properties->items[i].Find("type");
    parameters.push_back({properties->keys[i], of != nullptr && of->text == "string"});
  }
  return parameters;
}

absl::StatusOr<bool> ReadStrict(const OrderedJson& function, const std::string& path) {
  const OrderedJson* strict = function.Find("strict");
  if (strict == nullptr || strict->kind == OrderedJson::Kind::kNull || strict->kind == OrderedJson::Kind::kFalse) {
    return false;
  }
  if (strict->kind == OrderedJson::Kind::kTrue) return true;
  return FieldError(path + ".strict", absl::StrCat("must be a boolean, got ", OrderedKindName(*strict)));
}

// Reads it for the prompt, for the parsers, and for what enforces its calls.
absl::StatusOr<Tool> ReadTool(const OrderedJson& item, const std::string& path, std::string* function_text,
                              ChatTools::Definition* definition) {
  if (item.kind != OrderedJson::Kind::kObject) {
    return FieldError(path, absl::StrCat("must be an object, got ", OrderedKindName(item)));
  }
  ASSIGN_OR_RETURN(const OrderedJson* type, Member(item, "type", OrderedJson::Kind::kString, path));
  if (type != nullptr && type->text != "function") {
    return FieldError(path + ".type", absl::StrCat("only \"function\" is supported, got ", Quoted(type->text)));
  }
  ASSIGN_OR_RETURN(const OrderedJson* function, Member(item, "function", OrderedJson::Kind::kObject, path));
  if (function == nullptr) return FieldError(path + ".function", "is required");
  const std::string function_path = path + ".function";
  ASSIGN_OR_RETURN(const OrderedJson* name, Member(*function, "name", OrderedJson::Kind::kString, function_path));
  if (name == nullptr) return FieldError(function_path + ".name", "is required");
  RETURN_IF_ERROR(CheckName(name->text, function_path + ".name"));
  RETURN_IF_ERROR(Member(*function, "description", OrderedJson::Kind::kString, function_path).status());
  Tool tool;
  tool.name = name->text;
  ASSIGN_OR_RETURN(tool.parameters, ReadParameters(*function, function_path));
  AppendPythonJson(*function, function_text);
  definition->name = tool.name;
  ASSIGN_OR_RETURN(definition->is_strict, ReadStrict(*function, function_path));
  ASSIGN_OR_RETURN(const OrderedJson* schema,
                   Member(*function, "parameters", OrderedJson::Kind::kObject, function_path));
  if (schema != nullptr) definition->parameters = *schema;
  return tool;
}

absl::Status ReadTools(const json::object& request, absl::string_view body, ChatTools* tools) {
  const json::value* value = FindMember(request, "tools");
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_array()) return FieldError("tools", absl::StrCat("must be an array, got ", KindName(*value)));
  if (value->get_array().size() > kToolsMax) {
    return FieldError("tools",
                      absl::StrCat("must have at most ", kToolsMax, " tools, got ", value->get_array().size()));
  }
  if (value->get_array().empty()) return absl::OkStatus();
  const std::optional<absl::string_view> text = FindJsonSpan(body, "tools");
  if (!text.has_value()) return FieldError("tools", "its name must be written without escapes");
  const absl::StatusOr<OrderedJson> list = ParseOrderedJson(*text);
  if (!list.ok()) return FieldError("tools", std::string(list.status().message()));
  auto catalog = std::make_shared<ToolCatalog>();
  for (size_t i = 0; i < list->items.size(); ++i) {
    const std::string path = absl::StrCat("tools[", i, "]");
    ASSIGN_OR_RETURN(Tool tool, ReadTool(list->items[i], path, &tools->functions.emplace_back(),
                                         &tools->definitions.emplace_back()));
    if (catalog->Find(tool.name) != nullptr) {
      return FieldError(path + ".function.name", absl::StrCat("is given twice: ", Quoted(tool.name)));
    }
    catalog->tools.push_back(std::move(tool));
  }
  tools->catalog = std::move(catalog);
  return absl::OkStatus();
}

// {"type": "function", "function": {"name": ...}}
absl::Status ReadNamed(const json::object& choice, ChatTools* tools) {
  ASSIGN_OR_RETURN(const std::optional<std::string> type, OptionalString(choice, "type", "tool_choice.type"));
  if (type.has_value() && *type != "function") {
    return WithDetails(
        FieldError("tool_choice.type", absl::StrCat("only \"function\" is supported, got ", Quoted(*type))), "",
        "unsupported_parameter");
  }
  const std::string path = "tool_choice.function";
  ASSIGN_OR_RETURN(const json::object* function, OptionalObject(choice, "function", path));
  if (function == nullptr) return FieldError(path, "is required");
  ASSIGN_OR_RETURN(const std::optional<std::string> name, OptionalString(*function, "name", path + ".name"));
  if (!name.has_value()) return FieldError(path + ".name", "is required");
  if (tools->catalog == nullptr || tools->catalog->Find(*name) == nullptr) {
    return FieldError(path + ".name", absl::StrCat("is none of the request's tools: ", Quoted(*name)));
  }
  tools->choice = ChatTools::Choice::kNamed;
  tools->named = *name;
  return absl::OkStatus();
}

absl::Status ReadChoice(const json::object& request, ChatTools* tools) {
  const json::value* value = FindMember(request, "tool_choice");
  if (value == nullptr || *value == "auto") return absl::OkStatus();
  if (value->is_object()) return ReadNamed(value->get_object(), tools);
  if (*value == "none") {
    tools->choice = ChatTools::Choice::kNone;
    return absl::OkStatus();
  }
  if (*value != "required") {
    return FieldError("tool_choice", "must be \"none\", \"auto\", \"required\" or an object that names a function");
  }
  if (tools->catalog == nullptr) return FieldError("tool_choice", "is \"required\", but the request has no tools");
  tools->choice = ChatTools::Choice::kRequired;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatTools> ParseChatTools(const json::object& request, absl::string_view body) {
  ChatTools tools;
  RETURN_IF_ERROR(ReadTools(request, body, &tools));
  RETURN_IF_ERROR(ReadChoice(request, &tools));
  ASSIGN_OR_RETURN(const std::optional<bool> parallel,
                   OptionalBool(request, "parallel_tool_calls", "parallel_tool_calls"));
  tools.is_single_call = !parallel.value_or(true);
  return tools;
}

}  // namespace tandem::router

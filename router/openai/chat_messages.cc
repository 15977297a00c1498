#include "router/openai/chat_messages.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "router/openai/api_error.h"
#include "router/openai/chat_request.h"
#include "router/openai/json_fields.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

std::optional<ChatRole> RoleOf(absl::string_view name) {
  for (ChatRole role :
       {ChatRole::kSystem, ChatRole::kUser, ChatRole::kAssistant, ChatRole::kTool, ChatRole::kDeveloper}) {
    if (name == ChatRoleName(role)) return role;
  }
  return std::nullopt;
}

absl::StatusOr<std::string> RequiredString(const json::object& object, const char* name, const std::string& param) {
  ASSIGN_OR_RETURN(std::optional<std::string> text, OptionalString(object, name, param));
  if (!text.has_value()) return FieldError(param, "is required");
  return *std::move(text);
}

absl::StatusOr<std::string> ParseTextPart(const json::value& value, const std::string& path) {
  if (!value.is_object()) return FieldError(path, absl::StrCat("must be an object, got ", KindName(value)));
  const json::object& part = value.get_object();
  ASSIGN_OR_RETURN(std::string type, RequiredString(part, "type", path + ".type"));
  if (type != "text") {
    return FieldError(path + ".type", absl::StrCat("only \"text\" is supported, got ", Quoted(type)));
  }
  return RequiredString(part, "text", path + ".text");
}

// A string, a list of text parts joined without a separator, or nothing.
absl::StatusOr<std::string> ParseContent(const json::object& message, const std::string& path) {
  const json::value* content = FindMember(message, "content");
  if (content == nullptr) return std::string();
  if (content->is_string()) return std::string(content->get_string().data(), content->get_string().size());
  if (!content->is_array()) {
    return FieldError(path, absl::StrCat("must be a string or an array of parts, got ", KindName(*content)));
  }
  std::string text;
  const json::array& parts = content->get_array();
  for (size_t i = 0; i < parts.size(); ++i) {
    ASSIGN_OR_RETURN(std::string part, ParseTextPart(parts[i], absl::StrCat(path, "[", i, "]")));
    text += part;
  }
  return text;
}

absl::StatusOr<ChatToolCall> ParseToolCall(const json::value& value, const std::string& path) {
  if (!value.is_object()) return FieldError(path, absl::StrCat("must be an object, got ", KindName(value)));
  const json::object& object = value.get_object();
  ChatToolCall call;
  ASSIGN_OR_RETURN(std::optional<std::string> id, OptionalString(object, "id", path + ".id"));
  call.id = std::move(id).value_or("");
  ASSIGN_OR_RETURN(std::optional<std::string> type, OptionalString(object, "type", path + ".type"));
  if (type.value_or("function") != "function") {
    return FieldError(path + ".type", absl::StrCat("only \"function\" is supported, got ", Quoted(*type)));
  }
  ASSIGN_OR_RETURN(const json::object* function, OptionalObject(object, "function", path + ".function"));
  if (function == nullptr) return FieldError(path + ".function", "is required");
  ASSIGN_OR_RETURN(call.name, RequiredString(*function, "name", path + ".function.name"));
  ASSIGN_OR_RETURN(std::optional<std::string> arguments,
                   OptionalString(*function, "arguments", path + ".function.arguments"));
  call.arguments = std::move(arguments).value_or("");
  return call;
}

absl::StatusOr<std::vector<ChatToolCall>> ParseToolCalls(const json::object& message, const std::string& path) {
  std::vector<ChatToolCall> calls;
  const json::value* value = FindMember(message, "tool_calls");
  if (value == nullptr) return calls;
  if (!value->is_array()) return FieldError(path, absl::StrCat("must be an array, got ", KindName(*value)));
  const json::array& array = value->get_array();
  for (size_t i = 0; i < array.size(); ++i) {
    ASSIGN_OR_RETURN(ChatToolCall call, ParseToolCall(array[i], absl::StrCat(path, "[", i, "]")));
    calls.push_back(std::move(call));
  }
  return calls;
}

absl::StatusOr<ChatMessage> ParseMessage(const json::value& value, const std::string& path) {
  if (!value.is_object()) return FieldError(path, absl::StrCat("must be an object, got ", KindName(value)));
  const json::object& object = value.get_object();
  ASSIGN_OR_RETURN(std::string role_name, RequiredString(object, "role", path + ".role"));
  const std::optional<ChatRole> role = RoleOf(role_name);
  if (!role.has_value()) {
    return FieldError(path + ".role",
                      absl::StrCat("must be system, developer, user, assistant or tool, got ", Quoted(role_name)));
  }
  ChatMessage message;
  message.role = *role;
  ASSIGN_OR_RETURN(message.content, ParseContent(object, path + ".content"));
  if (*role == ChatRole::kAssistant) {
    ASSIGN_OR_RETURN(std::optional<std::string> reasoning,
                     OptionalString(object, "reasoning_content", path + ".reasoning_content"));
    message.reasoning_content = std::move(reasoning).value_or("");
    ASSIGN_OR_RETURN(message.tool_calls, ParseToolCalls(object, path + ".tool_calls"));
    ASSIGN_OR_RETURN(std::optional<bool> is_prefix, OptionalBool(object, "prefix", path + ".prefix"));
    message.is_prefix = is_prefix.value_or(false);
  }
  if (*role == ChatRole::kTool) {
    ASSIGN_OR_RETURN(std::optional<std::string> call_id,
                     OptionalString(object, "tool_call_id", path + ".tool_call_id"));
    message.tool_call_id = std::move(call_id).value_or("");
  }
  for (const char* name : {"tools", "response_format"}) {  // part of the chat format, not of this API
    if (FindMember(object, name) != nullptr) {
      return FieldError(absl::StrCat(path, ".", name), "is not supported; only null may be sent");
    }
  }
  return message;
}

}  // namespace

absl::StatusOr<std::vector<ChatMessage>> ParseChatMessages(const json::object& request) {
  const json::value* value = FindMember(request, "messages");
  if (value == nullptr) return FieldError("messages", "is required");
  if (!value->is_array()) return FieldError("messages", absl::StrCat("must be an array, got ", KindName(*value)));
  const json::array& array = value->get_array();
  if (array.empty()) return FieldError("messages", "must have at least one message");
  if (array.size() > kMessagesMax) {
    return FieldError("messages", absl::StrCat("must have at most ", kMessagesMax, " messages, got ", array.size()));
  }
  std::vector<ChatMessage> messages;
  messages.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    ASSIGN_OR_RETURN(ChatMessage message, ParseMessage(array[i], absl::StrCat("messages[", i, "]")));
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace tandem::router

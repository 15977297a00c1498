#include "router/chat/vector_messages.h"

#include <gtest/gtest.h>

#include "absl/strings/string_view.h"

namespace tandem::router {
namespace {

std::string Dump(const OrderedJson& value) {
  std::string out;
  AppendPythonJson(value, &out);
  return out;
}

ChatRole ReadRole(absl::string_view name) {
  for (const ChatRole role :
       {ChatRole::kSystem, ChatRole::kUser, ChatRole::kAssistant, ChatRole::kTool, ChatRole::kDeveloper}) {
    if (name == ChatRoleName(role)) return role;
  }
  ADD_FAILURE() << "no role " << name;
  return ChatRole::kUser;
}

}  // namespace

std::string TextOf(const OrderedJson* value) { return value == nullptr ? "" : value->text; }

std::vector<std::string> ReadTools(const OrderedJson* tools) {
  std::vector<std::string> read;
  if (tools == nullptr) return read;
  for (const OrderedJson& tool : tools->items) read.push_back(Dump(*tool.Find("function")));
  return read;
}

namespace {

ChatMessage ReadMessage(const OrderedJson& json) {
  ChatMessage message{.role = ReadRole(TextOf(json.Find("role"))),
                      .content = TextOf(json.Find("content")),
                      .reasoning_content = TextOf(json.Find("reasoning_content")),
                      .tool_call_id = TextOf(json.Find("tool_call_id")),
                      .tools = ReadTools(json.Find("tools"))};
  if (const OrderedJson* calls = json.Find("tool_calls")) {
    for (const OrderedJson& call : calls->items) {
      const OrderedJson* function = call.Find("function");
      message.tool_calls.push_back(
          {TextOf(call.Find("id")), TextOf(function->Find("name")), TextOf(function->Find("arguments"))});
    }
  }
  if (const OrderedJson* format = json.Find("response_format")) message.response_format = Dump(*format);
  return message;
}

}  // namespace

std::vector<ChatMessage> ReadMessages(const OrderedJson& json) {
  std::vector<ChatMessage> messages;
  for (const OrderedJson& message : json.items) messages.push_back(ReadMessage(message));
  return messages;
}

}  // namespace tandem::router

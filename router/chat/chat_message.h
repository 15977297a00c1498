// A conversation as the chat encoders read it, free of HTTP and of the many spellings that clients use.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::router {

enum class ChatRole { kSystem, kUser, kAssistant, kTool, kDeveloper };

// "system", "user", ...
const char* ChatRoleName(ChatRole role);

struct ChatToolCall {
  std::string id;  // may be empty: then results are matched by position
  std::string name;
  // JSON text of an object, as the client sent it. "", "null" and white space mean no arguments.
  std::string arguments;
};

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string content;                   // text parts joined; null and absent are empty
  std::string reasoning_content;         // assistant only
  std::vector<ChatToolCall> tool_calls;  // assistant only
  bool is_prefix = false;                // assistant, last message only: the answer goes on with it
  std::string tool_call_id;              // tool only; may be empty
  // system and developer only. Each the JSON text of one function: the value under tools[i].function, key order and
  // numbers as the client wrote them.
  std::vector<std::string> tools;
  // system and developer only. JSON text of the response_format value.
  std::optional<std::string> response_format;
};

struct Conversation {
  std::vector<ChatMessage> messages;
  // Given for the whole conversation, spelled as in ChatMessage: they belong to the first message if that is a system
  // message, else to an empty system message in front of it.
  std::vector<std::string> tools;
  std::optional<std::string> response_format;
};

}  // namespace tandem::router

// Input: a list of messages, one a line: a letter for the role, then fields separated by tabs. Whatever the
// conversation, encoding it must end in a prompt or in INVALID_ARGUMENT, and no byte of a field may become markup.
#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_split.h"
#include "router/chat/v32_encoder.h"

namespace {

using namespace tandem::router;

// Markup never has this byte; every field of the conversation gets it in front.
constexpr char kMark = '\x07';

std::string Field(const std::vector<std::string>& fields, size_t index) {
  return index < fields.size() ? kMark + fields[index] : "";
}

ChatMessage ReadMessage(const std::string& line) {
  const std::vector<std::string> fields = absl::StrSplit(line.substr(1), '\t');
  ChatMessage message;
  switch (line[0]) {
    case 's':
      message.role = ChatRole::kSystem;
      if (fields.size() > 1) message.tools = {fields[1]};
      if (fields.size() > 2) message.response_format = fields[2];
      break;
    case 'd':
      message.role = ChatRole::kDeveloper;
      break;
    case 'a':
      message.role = ChatRole::kAssistant;
      message.reasoning_content = Field(fields, 1);
      for (size_t i = 2; i + 1 < fields.size(); i += 2) {
        message.tool_calls.push_back({Field(fields, i), Field(fields, i), fields[i + 1]});
      }
      break;
    case 't':
      message.role = ChatRole::kTool;
      message.tool_call_id = Field(fields, 1);
      break;
    default:
      message.role = ChatRole::kUser;
  }
  message.content = Field(fields, 0);
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const V32Texts* const kTexts = new V32Texts{"TOOLS\n", "FORMAT\n"};
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  Conversation conversation;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n', absl::SkipEmpty()))) {
    conversation.messages.push_back(ReadMessage(line));
  }
  for (const ThinkingMode mode : {ThinkingMode::kChat, ThinkingMode::kThinking}) {
    const absl::StatusOr<MarkedText> prompt = EncodeV32(conversation, {.thinking_mode = mode, .texts = kTexts});
    if (!prompt.ok()) {
      if (prompt.status().code() != absl::StatusCode::kInvalidArgument) std::abort();
      continue;
    }
    for (const MarkedText::Run& run : prompt->runs()) {
      const std::string part = prompt->text().substr(run.begin, run.end - run.begin);
      if (run.is_markup && part.find(kMark) != std::string::npos) std::abort();
    }
  }
  return 0;
}

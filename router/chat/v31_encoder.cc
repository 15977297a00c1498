#include "router/chat/v31_encoder.h"

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/chat/ordered_json.h"
#include "router/chat/tool_results.h"

namespace tandem::router {
namespace {

constexpr absl::string_view kBeginOfSentence = "<｜begin▁of▁sentence｜>";
constexpr absl::string_view kEndOfSentence = "<｜end▁of▁sentence｜>";
constexpr absl::string_view kThinkClose = "</think>";

// Writes one conversation. Message indices are those of the request.
class Renderer {
 public:
  Renderer(const Conversation& conversation, const V31Options& options)
      : conversation_(conversation),
        messages_(conversation.messages),
        options_(options),
        is_thinking_(options.thinking_mode == ThinkingMode::kThinking) {}

  absl::StatusOr<MarkedText> Render() {
    prompt_.AppendMarkup(kBeginOfSentence);
    RETURN_IF_ERROR(RenderSystem());
    for (size_t i = 0; i < messages_.size(); ++i) {
      switch (messages_[i].role) {
        case ChatRole::kSystem:
        case ChatRole::kDeveloper:
          break;
        case ChatRole::kUser:
          prompt_.AppendMarkup("<｜User｜>");
          prompt_.AppendContent(messages_[i].content);
          is_after_question_ = true;
          is_after_results_ = false;
          break;
        case ChatRole::kAssistant:
          RETURN_IF_ERROR(RenderAssistant(i));
          break;
        case ChatRole::kTool:
          return InvalidMessage(i, "a tool result without a call before it");
      }
      if (messages_[i].role == ChatRole::kUser || messages_[i].role == ChatRole::kAssistant) is_only_system_ = false;
      size_t end = i + 1;
      while (end < messages_.size() && messages_[end].role == ChatRole::kTool) ++end;
      if (end == i + 1) continue;
      RETURN_IF_ERROR(RenderResults(i, end));
      i = end - 1;
    }
    if (is_after_question_ || is_only_system_) OpenAnswer(is_thinking_);
    return std::move(prompt_);
  }

 private:
  absl::Status RenderSystem() {
    if (conversation_.response_format.has_value()) {
      return absl::InvalidArgumentError("request: a response format is given, but the format has no place for it");
    }
    bool is_first = true;
    for (size_t i = 0; i < messages_.size(); ++i) {
      const ChatMessage& message = messages_[i];
      if (!message.tools.empty() || message.response_format.has_value()) {
        return InvalidMessage(i, "carries tools or a response format, for which the format has no place");
      }
      if (message.role != ChatRole::kAssistant && !message.tool_calls.empty()) {
        return InvalidMessage(i, absl::StrCat("a message of role ", ChatRoleName(message.role), " carries calls"));
      }
      if (message.role != ChatRole::kSystem && message.role != ChatRole::kDeveloper) continue;
      if (!std::exchange(is_first, false)) prompt_.AppendMarkup("\n\n");
      prompt_.AppendContent(message.content);
      is_only_system_ = true;
    }
    return RenderTools();
  }

  absl::Status RenderTools() {
    const std::vector<std::string>& tools = conversation_.tools;
    if (tools.empty()) return absl::OkStatus();
    if (options_.texts == nullptr || !options_.texts->tools_head.has_value()) {
      return absl::InvalidArgumentError("request: tools are given, but there is no text that introduces them");
    }
    prompt_.AppendMarkup("\n\n");
    prompt_.AppendMarkup(*options_.texts->tools_head);
    for (size_t i = 0; i < tools.size(); ++i) {
      const std::string where = absl::StrCat("request: tools[", i, "]: ");
      const absl::StatusOr<OrderedJson> tool = ParseOrderedJson(tools[i]);
      if (!tool.ok()) return absl::InvalidArgumentError(absl::StrCat(where, tool.status().message()));
      const OrderedJson* name = tool->Find("name");
      if (name == nullptr || name->kind != OrderedJson::Kind::kString) {
        return absl::InvalidArgumentError(absl::StrCat(where, "has no name"));
      }
      const OrderedJson* description = tool->Find("description");
      std::string parameters = "{}";
      if (const OrderedJson* found = tool->Find("parameters"); found != nullptr) {
        parameters.clear();
        AppendPythonJson(*found, &parameters);
      }
      prompt_.AppendMarkup("\n### ");
      prompt_.AppendContent(name->text);
      prompt_.AppendMarkup("\nDescription: ");
      if (description != nullptr) prompt_.AppendContent(description->text);
      prompt_.AppendMarkup("\n\nParameters: ");
      prompt_.AppendContent(parameters);
      prompt_.AppendMarkup("\n");
    }
    prompt_.AppendMarkup(options_.texts->tools_tail);
    return absl::OkStatus();
  }

  void OpenAnswer(bool thinks) {
    prompt_.AppendMarkup("<｜Assistant｜>");
    prompt_.AppendMarkup(thinks ? "<think>" : kThinkClose);
    is_after_question_ = false;
  }

  absl::Status RenderAssistant(size_t index) {
    const ChatMessage& message = messages_[index];
    if (message.is_prefix && index + 1 != messages_.size()) {
      return InvalidMessage(index, "is a prefix, but not the last message");
    }
    if (message.is_prefix && !message.tool_calls.empty()) return InvalidMessage(index, "is a prefix and carries calls");
    // Behind system messages alone an answer without calls has no role's mark: the format's own oddity.
    if (is_after_question_ || (is_only_system_ && !message.tool_calls.empty())) {
      OpenAnswer(is_thinking_ && message.is_prefix);
    }
    if (message.is_prefix && is_thinking_ && !message.reasoning_content.empty()) {
      prompt_.AppendContent(message.reasoning_content);
      if (!message.content.empty()) prompt_.AppendMarkup(kThinkClose);
    }
    absl::string_view content = message.content;
    if (message.tool_calls.empty() && !is_after_results_) {
      const size_t close = content.find(kThinkClose);
      if (close != absl::string_view::npos) content.remove_prefix(close + kThinkClose.size());
    }
    prompt_.AppendContent(content);
    is_after_results_ = false;
    if (message.is_prefix) return absl::OkStatus();
    if (!message.tool_calls.empty()) {
      prompt_.AppendMarkup("<｜tool▁calls▁begin｜>");
      for (const ChatToolCall& call : message.tool_calls) {
        prompt_.AppendMarkup("<｜tool▁call▁begin｜>");
        prompt_.AppendContent(call.name);
        prompt_.AppendMarkup("<｜tool▁sep｜>");
        const bool has_none = absl::StripAsciiWhitespace(call.arguments).empty();
        prompt_.AppendContent(has_none ? absl::string_view("{}") : absl::string_view(call.arguments));
        prompt_.AppendMarkup("<｜tool▁call▁end｜>");
      }
      prompt_.AppendMarkup("<｜tool▁calls▁end｜>");
    }
    prompt_.AppendMarkup(kEndOfSentence);
    return absl::OkStatus();
  }

  // The tool messages (calls_index, end) that answer the calls of message calls_index.
  absl::Status RenderResults(size_t calls_index, size_t end) {
    ASSIGN_OR_RETURN(const std::vector<size_t> order, OrderToolResults(messages_, calls_index, end));
    for (const size_t result : order) {
      prompt_.AppendMarkup("<｜tool▁output▁begin｜>");
      prompt_.AppendContent(messages_[result].content);
      prompt_.AppendMarkup("<｜tool▁output▁end｜>");
    }
    is_after_results_ = true;
    return absl::OkStatus();
  }

  const Conversation& conversation_;
  const std::vector<ChatMessage>& messages_;
  const V31Options& options_;
  const bool is_thinking_;
  bool is_only_system_ = false;     // there are system messages, and nothing else yet
  bool is_after_question_ = false;  // the answer that follows is to be opened by its role's mark
  bool is_after_results_ = false;   // the last thing written is a tool's result
  MarkedText prompt_;
};

}  // namespace

absl::StatusOr<MarkedText> EncodeV31(const Conversation& conversation, const V31Options& options) {
  return Renderer(conversation, options).Render();
}

}  // namespace tandem::router

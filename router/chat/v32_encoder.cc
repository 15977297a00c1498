#include "router/chat/v32_encoder.h"

#include <algorithm>
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
constexpr absl::string_view kUser = "<｜User｜>";
constexpr absl::string_view kAssistant = "<｜Assistant｜>";
constexpr absl::string_view kThinkOpen = "<think>";
constexpr absl::string_view kThinkClose = "</think>";

// Writes one conversation. Message indices are those of the request.
class Renderer {
 public:
  Renderer(const Conversation& conversation, const V32Options& options)
      : conversation_(conversation),
        messages_(conversation.messages),
        options_(options),
        is_thinking_(options.thinking_mode == ThinkingMode::kThinking) {
    for (size_t i = 0; i < messages_.size(); ++i) {
      const ChatRole role = messages_[i].role;
      if (role == ChatRole::kUser || role == ChatRole::kDeveloper) num_before_answer_ = i + 1;
    }
  }

  absl::StatusOr<MarkedText> Render() {
    if (options_.add_bos) prompt_.AppendMarkup(kBeginOfSentence);
    if (!messages_.empty() && messages_[0].role == ChatRole::kSystem) {
      if (!messages_[0].tools.empty() && !conversation_.tools.empty()) {
        return InvalidMessage(0, "carries tools, and so does the request");
      }
      if (messages_[0].response_format.has_value() && conversation_.response_format.has_value()) {
        return InvalidMessage(0, "carries a response format, and so does the request");
      }
    } else {
      RETURN_IF_ERROR(RenderTools("request", conversation_.tools));
      RETURN_IF_ERROR(RenderFormat("request", conversation_.response_format));
    }
    for (size_t i = 0; i < messages_.size();) {
      if (messages_[i].role == ChatRole::kTool) return InvalidMessage(i, "a tool result without a call before it");
      RETURN_IF_ERROR(RenderMessage(i));
      size_t end = i + 1;
      while (end < messages_.size() && messages_[end].role == ChatRole::kTool) ++end;
      if (end > i + 1) RETURN_IF_ERROR(RenderResults(i, end));
      i = end;
    }
    return std::move(prompt_);
  }

 private:
  // True for the messages that follow the last question: their reasoning is shown.
  bool IsAfterQuestion(size_t index) const { return index >= num_before_answer_; }

  // True for the last question itself and what follows it: the turn they open may think.
  bool OpensThinking(size_t index) const { return is_thinking_ && index + 1 >= num_before_answer_; }

  absl::Status RenderMessage(size_t index) {
    const ChatMessage& message = messages_[index];
    const bool may_have_tools = message.role == ChatRole::kSystem || message.role == ChatRole::kDeveloper;
    if (!may_have_tools && (!message.tools.empty() || message.response_format.has_value())) {
      return InvalidMessage(
          index, absl::StrCat("a message of role ", ChatRoleName(message.role), " carries tools or a response format"));
    }
    if (message.role != ChatRole::kAssistant && !message.tool_calls.empty()) {
      return InvalidMessage(index, absl::StrCat("a message of role ", ChatRoleName(message.role), " carries calls"));
    }
    switch (message.role) {
      case ChatRole::kSystem:
        prompt_.AppendContent(message.content);
        return RenderToolsAndFormat(index);
      case ChatRole::kUser:
        prompt_.AppendMarkup(kUser);
        prompt_.AppendContent(message.content);
        OpenAnswer(index);
        return absl::OkStatus();
      case ChatRole::kDeveloper:
        if (message.content.empty()) return InvalidMessage(index, "a developer message has no content");
        prompt_.AppendMarkup(kUser);
        RETURN_IF_ERROR(RenderToolsAndFormat(index));
        prompt_.AppendMarkup("\n\n# The user's message is: ");
        prompt_.AppendContent(message.content);
        OpenAnswer(index);
        return absl::OkStatus();
      case ChatRole::kAssistant:
        return RenderAssistant(index);
      case ChatRole::kTool:
        break;
    }
    return InvalidMessage(index, "a tool result without a call before it");
  }

  void OpenAnswer(size_t index) {
    prompt_.AppendMarkup(kAssistant);
    prompt_.AppendMarkup(OpensThinking(index) ? kThinkOpen : kThinkClose);
  }

  absl::Status RenderAssistant(size_t index) {
    const ChatMessage& message = messages_[index];
    if (is_thinking_ && IsAfterQuestion(index)) {
      if (message.reasoning_content.empty() && message.tool_calls.empty()) {
        return InvalidMessage(index,
                              "an assistant message after the last question has neither reasoning_content nor "
                              "tool_calls, in thinking mode");
      }
      prompt_.AppendContent(message.reasoning_content);
      if (message.is_prefix && message.content.empty()) return CheckIsLast(index);  // its reasoning goes on
      prompt_.AppendMarkup(kThinkClose);
    }
    prompt_.AppendContent(message.content);
    if (message.is_prefix) return CheckIsLast(index);
    if (!message.tool_calls.empty()) {
      prompt_.AppendMarkup("\n\n<｜DSML｜function_calls>\n");
      for (size_t call = 0; call < message.tool_calls.size(); ++call) {
        RETURN_IF_ERROR(RenderCall(index, call));
      }
      prompt_.AppendMarkup("</｜DSML｜function_calls>");
    }
    prompt_.AppendMarkup(kEndOfSentence);
    return absl::OkStatus();
  }

  // Of a message that the answer is to go on with.
  absl::Status CheckIsLast(size_t index) const {
    if (index + 1 != messages_.size()) return InvalidMessage(index, "is a prefix, but not the last message");
    if (!messages_[index].tool_calls.empty()) return InvalidMessage(index, "is a prefix and carries calls");
    if (num_before_answer_ == 0) return InvalidMessage(index, "is a prefix without a question before it");
    return absl::OkStatus();
  }

  absl::Status RenderCall(size_t index, size_t call_index) {
    const ChatToolCall& call = messages_[index].tool_calls[call_index];
    prompt_.AppendMarkup("<｜DSML｜invoke name=\"");
    prompt_.AppendContent(call.name);
    prompt_.AppendMarkup("\">\n");
    OrderedJson arguments;
    if (!absl::StripAsciiWhitespace(call.arguments).empty()) {
      absl::StatusOr<OrderedJson> parsed = ParseOrderedJson(call.arguments);
      const absl::string_view where = "arguments of call ";
      if (!parsed.ok()) {
        return InvalidMessage(index, absl::StrCat(where, call_index, ": ", parsed.status().message()));
      }
      arguments = *std::move(parsed);
      if (arguments.kind != OrderedJson::Kind::kObject && arguments.kind != OrderedJson::Kind::kNull) {
        return InvalidMessage(index, absl::StrCat(where, call_index, ": not a JSON object"));
      }
    }
    for (size_t i = 0; i < arguments.keys.size(); ++i) RenderParameter(arguments.keys[i], arguments.items[i]);
    if (arguments.keys.empty()) prompt_.AppendMarkup("\n");
    prompt_.AppendMarkup("</｜DSML｜invoke>\n");
    return absl::OkStatus();
  }

  void RenderParameter(absl::string_view key, const OrderedJson& value) {
    const bool is_string = value.kind == OrderedJson::Kind::kString;
    prompt_.AppendMarkup("<｜DSML｜parameter name=\"");
    prompt_.AppendContent(key);
    prompt_.AppendMarkup(is_string ? "\" string=\"true\">" : "\" string=\"false\">");
    std::string dumped;
    if (!is_string) AppendPythonJson(value, &dumped);
    prompt_.AppendContent(is_string ? value.text : dumped);
    prompt_.AppendMarkup("</｜DSML｜parameter>\n");
  }

  // The tool messages (calls_index, end) that answer the calls of message calls_index.
  absl::Status RenderResults(size_t calls_index, size_t end) {
    ASSIGN_OR_RETURN(const std::vector<size_t> order, OrderToolResults(messages_, calls_index, end));
    prompt_.AppendMarkup("\n\n<function_results>");
    for (const size_t result : order) {
      prompt_.AppendMarkup("\n<result>");
      prompt_.AppendContent(messages_[result].content);
      prompt_.AppendMarkup("</result>");
    }
    prompt_.AppendMarkup("\n</function_results>\n\n");
    prompt_.AppendMarkup(OpensThinking(end - 1) ? kThinkOpen : kThinkClose);
    return absl::OkStatus();
  }

  absl::Status RenderToolsAndFormat(size_t index) {
    const ChatMessage& message = messages_[index];
    const bool takes_requests = index == 0 && message.role == ChatRole::kSystem;
    const std::string where = absl::StrCat("messages[", index, "]");
    RETURN_IF_ERROR(RenderTools(where, message.tools));
    if (takes_requests) RETURN_IF_ERROR(RenderTools("request", conversation_.tools));
    RETURN_IF_ERROR(RenderFormat(where, message.response_format));
    if (takes_requests) RETURN_IF_ERROR(RenderFormat("request", conversation_.response_format));
    return absl::OkStatus();
  }

  absl::Status RenderTools(absl::string_view where, const std::vector<std::string>& tools) {
    if (tools.empty()) return absl::OkStatus();
    if (options_.texts == nullptr || !options_.texts->tools_head.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": tools are given, but the checkpoint has no text that introduces them"));
    }
    prompt_.AppendMarkup("\n\n");
    prompt_.AppendMarkup(*options_.texts->tools_head);
    for (size_t i = 0; i < tools.size(); ++i) {
      if (i > 0) prompt_.AppendMarkup("\n");
      RETURN_IF_ERROR(RenderJson(absl::StrCat(where, ": tools[", i, "]"), tools[i]));
    }
    prompt_.AppendMarkup(options_.texts->tools_tail);
    return absl::OkStatus();
  }

  absl::Status RenderFormat(absl::string_view where, const std::optional<std::string>& format) {
    if (!format.has_value()) return absl::OkStatus();
    if (options_.texts == nullptr || !options_.texts->response_format_head.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": a response format is given, but the checkpoint has no text that introduces it"));
    }
    prompt_.AppendMarkup("\n\n");
    prompt_.AppendMarkup(*options_.texts->response_format_head);
    return RenderJson(absl::StrCat(where, ": response_format"), *format);
  }

  absl::Status RenderJson(absl::string_view where, absl::string_view json) {
    absl::StatusOr<OrderedJson> value = ParseOrderedJson(json);
    if (!value.ok()) return absl::InvalidArgumentError(absl::StrCat(where, ": ", value.status().message()));
    std::string dumped;
    AppendPythonJson(*value, &dumped);
    prompt_.AppendContent(dumped);
    return absl::OkStatus();
  }

  const Conversation& conversation_;
  const std::vector<ChatMessage>& messages_;
  const V32Options& options_;
  const bool is_thinking_;
  size_t num_before_answer_ = 0;  // messages up to and including the last question
  MarkedText prompt_;
};

}  // namespace

absl::StatusOr<MarkedText> EncodeV32(const Conversation& conversation, const V32Options& options) {
  return Renderer(conversation, options).Render();
}

}  // namespace tandem::router

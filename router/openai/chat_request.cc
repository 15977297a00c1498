#include "router/openai/chat_request.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "boost/json.hpp"
#include "router/openai/api_error.h"
#include "router/openai/chat_messages.h"
#include "router/openai/json_fields.h"
#include "router/openai/response_format.h"
#include "router/openai/unsupported_fields.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

// chat_template_kwargs.thinking and .enable_thinking are two spellings of one switch.
absl::StatusOr<std::optional<bool>> ThinkingOfTemplateKwargs(const json::object& request) {
  ASSIGN_OR_RETURN(const json::object* kwargs, OptionalObject(request, "chat_template_kwargs", "chat_template_kwargs"));
  if (kwargs == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(std::optional<bool> thinking, OptionalBool(*kwargs, "thinking", "chat_template_kwargs.thinking"));
  ASSIGN_OR_RETURN(std::optional<bool> enable_thinking,
                   OptionalBool(*kwargs, "enable_thinking", "chat_template_kwargs.enable_thinking"));
  if (thinking.has_value() && enable_thinking.has_value() && *thinking != *enable_thinking) {
    return FieldError("chat_template_kwargs", "thinking and enable_thinking contradict each other");
  }
  return thinking.has_value() ? thinking : enable_thinking;
}

// {"thinking": {"type": "enabled" | "disabled"}}
absl::StatusOr<std::optional<bool>> ThinkingOfThinkingObject(const json::object& request) {
  ASSIGN_OR_RETURN(const json::object* thinking, OptionalObject(request, "thinking", "thinking"));
  if (thinking == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(std::optional<std::string> type, OptionalString(*thinking, "type", "thinking.type"));
  if (type == "enabled") return true;
  if (type == "disabled") return false;
  return FieldError("thinking.type", "must be \"enabled\" or \"disabled\"");
}

// The format has no degrees of thinking: any effort but "none" and "minimal" switches it on.
absl::StatusOr<std::optional<bool>> ThinkingOfReasoningEffort(const json::object& request) {
  ASSIGN_OR_RETURN(std::optional<std::string> effort, OptionalString(request, "reasoning_effort", "reasoning_effort"));
  if (!effort.has_value()) return std::nullopt;
  if (*effort == "none" || *effort == "minimal") return false;
  for (const char* level : {"low", "medium", "high", "xhigh", "max"}) {
    if (*effort == level) return true;
  }
  return FieldError("reasoning_effort",
                    absl::StrCat("must be none, minimal, low, medium, high, xhigh or max, got ", Quoted(*effort)));
}

// The more explicit spelling wins; all are checked.
absl::StatusOr<bool> ParseThinking(const json::object& request) {
  ASSIGN_OR_RETURN(std::optional<bool> by_kwargs, ThinkingOfTemplateKwargs(request));
  ASSIGN_OR_RETURN(std::optional<bool> by_object, ThinkingOfThinkingObject(request));
  ASSIGN_OR_RETURN(std::optional<bool> by_effort, ThinkingOfReasoningEffort(request));
  if (by_kwargs.has_value()) return *by_kwargs;
  if (by_object.has_value()) return *by_object;
  return by_effort.value_or(false);
}

absl::Status ParseLogprobs(const json::object& request, GenerationFields* parsed) {
  ASSIGN_OR_RETURN(const std::optional<bool> logprobs, OptionalBool(request, "logprobs", "logprobs"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> top,
                   OptionalInteger(request, "top_logprobs", "top_logprobs", 0, kTopLogprobsMax));
  parsed->wants_logprobs = logprobs.value_or(false);
  parsed->num_top_logprobs = static_cast<int>(top.value_or(0));
  if (parsed->num_top_logprobs == 0 || parsed->wants_logprobs) return absl::OkStatus();
  return FieldError("top_logprobs", "is allowed only where logprobs is true");
}

// continue_final_message is another spelling of the last message's `prefix`. add_generation_prompt says the opposite of
// it, and nothing else.
absl::Status ParseContinuation(const json::object& request, ChatRequest* parsed) {
  ASSIGN_OR_RETURN(const std::optional<bool> goes_on,
                   OptionalBool(request, "continue_final_message", "continue_final_message"));
  ASSIGN_OR_RETURN(const std::optional<bool> opens,
                   OptionalBool(request, "add_generation_prompt", "add_generation_prompt"));
  ChatMessage& last = parsed->messages.back();
  if (goes_on.value_or(false)) {
    if (last.role != ChatRole::kAssistant) {
      return FieldError("continue_final_message", absl::StrCat("the last message is of role ", ChatRoleName(last.role),
                                                               ", only an assistant's can be continued"));
    }
    last.is_prefix = true;
  }
  if (opens.has_value() && *opens == last.is_prefix) {
    return FieldError("add_generation_prompt", last.is_prefix
                                                   ? "must be false where the last message is continued"
                                                   : "may be false only where the last message is continued");
  }
  return absl::OkStatus();
}

absl::Status ReadChatRequest(const json::object& request, absl::string_view body, ChatRequest* parsed) {
  ASSIGN_OR_RETURN(parsed->generation, ParseGenerationFields(request));
  ASSIGN_OR_RETURN(parsed->messages, ParseChatMessages(request));
  RETURN_IF_ERROR(ParseContinuation(request, parsed));
  RETURN_IF_ERROR(RefuseUnsupportedChatFields(request));
  ASSIGN_OR_RETURN(parsed->tools, ParseChatTools(request, body));
  ASSIGN_OR_RETURN(parsed->response_format, ParseResponseFormat(request, body));
  RETURN_IF_ERROR(CheckOneForm(parsed->response_format, parsed->generation.form));
  RETURN_IF_ERROR(ParseLogprobs(request, &parsed->generation));
  ASSIGN_OR_RETURN(parsed->is_thinking, ParseThinking(request));
  ASSIGN_OR_RETURN(const std::optional<bool> separates,
                   OptionalBool(request, "separate_reasoning", "separate_reasoning"));
  parsed->separates_reasoning = separates.value_or(true);
  ASSIGN_OR_RETURN(const std::optional<bool> streams, OptionalBool(request, "stream_reasoning", "stream_reasoning"));
  parsed->streams_reasoning = streams.value_or(true);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatRequest> ParseChatRequest(absl::string_view body) {
  ChatRequest parsed;
  RETURN_IF_ERROR(
      ReadJsonBody(body, [&](const json::object& request) { return ReadChatRequest(request, body, &parsed); }));
  return parsed;
}

}  // namespace tandem::router

#include "router/openai/chat_response.h"

#include "absl/strings/str_cat.h"
#include "router/openai/json_text.h"
#include "router/openai/logprobs_text.h"

namespace tandem::router {

ChatFormat::ChatFormat(const AnswerIdentity& identity, const Options& options, const Tokenizer* tokenizer)
    : frame_(identity, "chat.completion.chunk", "chat.completion", options.has_usage_field),
      id_(identity.id),
      options_(options),
      tokenizer_(tokenizer) {}

void ChatFormat::AppendLogprobs(std::string& out, absl::Span<const TokenLogprob> logprobs) const {
  if (!options_.has_logprobs || logprobs.empty()) {
    out += "null";
  } else {
    AppendChatLogprobs(out, logprobs, *tokenizer_);
  }
}

void ChatFormat::AppendOpening(std::string& out, int index) const {
  absl::StrAppend(&out, frame_.event_head(), "{\"index\":", index,
                  ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"}", ",\"logprobs\":null,\"finish_reason\":null}",
                  frame_.event_end());
}

void ChatFormat::AppendText(std::string& out, int index, absl::string_view delta, absl::string_view text,
                            absl::Span<const TokenLogprob> logprobs) const {
  absl::StrAppend(&out, frame_.event_head(), "{\"index\":", index, ",\"delta\":{", delta, ":\"");
  AppendJsonEscaped(out, text);
  out += "\"},\"logprobs\":";
  AppendLogprobs(out, logprobs);
  absl::StrAppend(&out, ",\"finish_reason\":null}", frame_.event_end());
}

// Unique as the answer's own id is, whose random part it carries.
void ChatFormat::AppendCallId(std::string& out, int index, int call) const {
  absl::StrAppend(&out, "\"call_");
  AppendJsonEscaped(out, absl::string_view(id_).substr(id_.rfind('-') + 1));
  absl::StrAppend(&out, absl::Hex(index, absl::kZeroPad4), absl::Hex(call, absl::kZeroPad4), "\"");
}

void ChatFormat::AppendDeltaCalls(std::string& out, int index, absl::Span<const ToolCallDelta> calls) const {
  out += '[';
  for (size_t i = 0; i < calls.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ",", "{\"index\":", calls[i].index);
    if (!calls[i].name.empty()) {
      out += ",\"id\":";
      AppendCallId(out, index, calls[i].index);
      out += ",\"type\":\"function\",\"function\":{\"name\":";
      AppendJsonString(out, calls[i].name);
      out += ",\"arguments\":";
    } else {
      out += ",\"function\":{\"arguments\":";
    }
    AppendJsonString(out, calls[i].arguments);
    out += "}}";
  }
  out += ']';
}

void ChatFormat::AppendWholeCalls(std::string& out, int index, absl::Span<const ToolCallDelta> calls) const {
  out += '[';
  for (size_t i = 0; i < calls.size(); ++i) {
    out += i == 0 ? "{\"id\":" : ",{\"id\":";
    AppendCallId(out, index, calls[i].index);
    out += ",\"type\":\"function\",\"function\":{\"name\":";
    AppendJsonString(out, calls[i].name);
    out += ",\"arguments\":";
    AppendJsonString(out, calls[i].arguments);
    out += "}}";
  }
  out += ']';
}

void ChatFormat::AppendDelta(std::string& out, int index, const ChoiceDelta& delta) {
  absl::Span<const TokenLogprob> logprobs = delta.logprobs;  // until an event has taken them
  if (!delta.text.reasoning.empty()) {
    AppendText(out, index, "\"reasoning_content\"", delta.text.reasoning, logprobs);
    logprobs = {};
  }
  if (!delta.text.content.empty()) {
    AppendText(out, index, "\"content\"", delta.text.content, logprobs);
    logprobs = {};
  }
  if (!delta.text.tool_calls.empty()) {
    absl::StrAppend(&out, frame_.event_head(), "{\"index\":", index, ",\"delta\":{\"tool_calls\":");
    AppendDeltaCalls(out, index, delta.text.tool_calls);
    out += "},\"logprobs\":";
    AppendLogprobs(out, logprobs);
    absl::StrAppend(&out, ",\"finish_reason\":null}", frame_.event_end());
    logprobs = {};
  }
  if (!delta.end.has_value()) return;
  absl::StrAppend(&out, frame_.event_head(), "{\"index\":", index, ",\"delta\":{},\"logprobs\":");
  AppendLogprobs(out, logprobs);
  out += ',';
  AppendEndMembers(out, *delta.end);
  absl::StrAppend(&out, "}", frame_.event_end());
}

void ChatFormat::AppendUsage(std::string& out, const Usage& usage) const { frame_.AppendUsageEvent(out, usage); }

void ChatFormat::AppendWholeChoice(std::string& out, int index, const WholeChoice& choice) const {
  absl::StrAppend(&out, "{\"index\":", index, ",\"message\":{\"role\":\"assistant\",\"content\":");
  if (choice.text.content.empty() && !choice.text.tool_calls.empty()) {
    out += "null";
  } else {
    AppendJsonString(out, choice.text.content);
  }
  if (options_.is_thinking) {
    out += ",\"reasoning_content\":";
    AppendJsonString(out, choice.text.reasoning);
  }
  if (!choice.text.tool_calls.empty()) {
    out += ",\"tool_calls\":";
    AppendWholeCalls(out, index, choice.text.tool_calls);
  }
  out += "},\"logprobs\":";
  if (options_.has_logprobs) {
    AppendChatLogprobs(out, choice.logprobs, *tokenizer_);
  } else {
    out += "null";
  }
  out += ',';
  AppendEndMembers(out, choice.end);
  out += '}';
}

std::string ChatFormat::WholeBody(absl::Span<const WholeChoice> choices, const Usage& usage) const {
  return frame_.WholeBody(choices.size(), usage,
                          [&](std::string& out, int index) { AppendWholeChoice(out, index, choices[index]); });
}

}  // namespace tandem::router

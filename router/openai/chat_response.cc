#include "router/openai/chat_response.h"

#include "absl/strings/str_cat.h"
#include "router/openai/json_text.h"
#include "router/openai/logprobs_text.h"

namespace tandem::router {

ChatFormat::ChatFormat(const AnswerIdentity& identity, const Options& options, const Tokenizer* tokenizer)
    : identity_(identity), options_(options), tokenizer_(tokenizer) {
  head_ = "data: ";
  AppendIdentity(head_, identity, "chat.completion.chunk");
  head_ += ",\"choices\":[";
  end_ = options.has_usage_field ? "],\"usage\":null}\n\n" : "]}\n\n";
}

void ChatFormat::AppendLogprobs(std::string& out, absl::Span<const TokenLogprob> logprobs) const {
  if (!options_.has_logprobs || logprobs.empty()) {
    out += "null";
  } else {
    AppendChatLogprobs(out, logprobs, *tokenizer_);
  }
}

void ChatFormat::AppendOpening(std::string& out, int index) const {
  absl::StrAppend(&out, head_, "{\"index\":", index, ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"}",
                  ",\"logprobs\":null,\"finish_reason\":null}", end_);
}

void ChatFormat::AppendText(std::string& out, int index, absl::string_view delta, absl::string_view text,
                            absl::Span<const TokenLogprob> logprobs) const {
  absl::StrAppend(&out, head_, "{\"index\":", index, ",\"delta\":{", delta, ":\"");
  AppendJsonEscaped(out, text);
  out += "\"},\"logprobs\":";
  AppendLogprobs(out, logprobs);
  absl::StrAppend(&out, ",\"finish_reason\":null}", end_);
}

// Unique as the answer's own id is, whose random part it carries.
void ChatFormat::AppendCallId(std::string& out, int index, int call) const {
  const absl::string_view id = identity_.id;
  absl::StrAppend(&out, "\"call_");
  AppendJsonEscaped(out, id.substr(id.rfind('-') + 1));
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
    absl::StrAppend(&out, head_, "{\"index\":", index, ",\"delta\":{\"tool_calls\":");
    AppendDeltaCalls(out, index, delta.text.tool_calls);
    out += "},\"logprobs\":";
    AppendLogprobs(out, logprobs);
    absl::StrAppend(&out, ",\"finish_reason\":null}", end_);
    logprobs = {};
  }
  if (!delta.end.has_value()) return;
  absl::StrAppend(&out, head_, "{\"index\":", index, ",\"delta\":{},\"logprobs\":");
  AppendLogprobs(out, logprobs);
  out += ',';
  AppendEndMembers(out, *delta.end);
  absl::StrAppend(&out, "}", end_);
}

void ChatFormat::AppendUsage(std::string& out, const Usage& usage) const {
  absl::StrAppend(&out, head_, "],\"usage\":");
  AppendUsageObject(out, usage);
  out += "}\n\n";
}

std::string ChatFormat::WholeBody(absl::Span<const WholeChoice> choices, const Usage& usage) const {
  std::string out;
  AppendIdentity(out, identity_, "chat.completion");
  out += ",\"choices\":[";
  for (size_t index = 0; index < choices.size(); ++index) {
    const WholeChoice& choice = choices[index];
    absl::StrAppend(&out, index == 0 ? "" : ",", "{\"index\":", index,
                    ",\"message\":{\"role\":\"assistant\",\"content\":");
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
      AppendWholeCalls(out, static_cast<int>(index), choice.text.tool_calls);
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
  out += "],\"usage\":";
  AppendUsageObject(out, usage);
  out += '}';
  return out;
}

}  // namespace tandem::router

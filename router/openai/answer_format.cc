#include "router/openai/answer_format.h"

#include "absl/strings/str_cat.h"
#include "router/openai/json_text.h"

namespace tandem::router {

void AppendErrorEvent(std::string& out, absl::string_view error_body) {
  absl::StrAppend(&out, "data: ", error_body, "\n\n");
}

void AppendDoneEvent(std::string& out) { out += "data: [DONE]\n\n"; }

void AppendKeepaliveEvent(std::string& out) { out += ": keep-alive\n\n"; }

void AppendIdentity(std::string& out, const AnswerIdentity& identity, absl::string_view object) {
  out += "{\"id\":";
  AppendJsonString(out, identity.id);
  absl::StrAppend(&out, ",\"object\":\"", object, "\",\"created\":", identity.created, ",\"model\":");
  AppendJsonString(out, identity.model);
}

void AppendUsageObject(std::string& out, const Usage& usage) {
  absl::StrAppend(&out, "{\"prompt_tokens\":", usage.prompt_tokens, ",\"completion_tokens\":", usage.completion_tokens,
                  ",\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens);
  if (usage.truncated_tokens > 0) {
    absl::StrAppend(&out, ",\"prompt_tokens_details\":{\"truncated_tokens\":", usage.truncated_tokens, "}");
  }
  if (usage.reasoning_tokens.has_value()) {
    absl::StrAppend(&out, ",\"completion_tokens_details\":{\"reasoning_tokens\":", *usage.reasoning_tokens, "}");
  }
  out += '}';
}

void AppendEndMembers(std::string& out, const ChoiceEnd& end) {
  absl::StrAppend(&out, "\"finish_reason\":\"", AnswerFinishName(end.finish), "\",\"matched_stop\":");
  if (const auto* token = std::get_if<TokenId>(&end.matched_stop)) {
    absl::StrAppend(&out, *token);
  } else if (const auto* text = std::get_if<std::string>(&end.matched_stop)) {
    AppendJsonString(out, *text);
  } else {
    out += "null";
  }
}

}  // namespace tandem::router

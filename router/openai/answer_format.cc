#include "router/openai/answer_format.h"

#include "absl/strings/str_cat.h"
#include "router/openai/json_text.h"

namespace tandem::router {
namespace {

// {"id":...,"object":...,"created":...,"model":... without an end.
void AppendIdentity(std::string& out, const AnswerIdentity& identity, absl::string_view object) {
  out += "{\"id\":";
  AppendJsonString(out, identity.id);
  absl::StrAppend(&out, ",\"object\":\"", object, "\",\"created\":", identity.created, ",\"model\":");
  AppendJsonString(out, identity.model);
}

void AppendUsageObject(std::string& out, const Usage& usage) {
  absl::StrAppend(&out, "{\"prompt_tokens\":", usage.prompt_tokens, ",\"completion_tokens\":", usage.completion_tokens,
                  ",\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens);
  absl::StrAppend(&out, ",\"prompt_tokens_details\":{\"cached_tokens\":", usage.cached_tokens);
  if (usage.truncated_tokens > 0) absl::StrAppend(&out, ",\"truncated_tokens\":", usage.truncated_tokens);
  // OpenAI's place, and SGLang's.
  absl::StrAppend(&out, "},\"completion_tokens_details\":{\"reasoning_tokens\":", usage.reasoning_tokens,
                  "},\"reasoning_tokens\":", usage.reasoning_tokens, "}");
}

}  // namespace

AnswerFrame::AnswerFrame(const AnswerIdentity& identity, absl::string_view event_object, absl::string_view body_object,
                         bool has_usage_field)
    : event_head_("data: "), event_end_(has_usage_field ? "],\"usage\":null}\n\n" : "]}\n\n") {
  AppendIdentity(event_head_, identity, event_object);
  event_head_ += ",\"choices\":[";
  AppendIdentity(body_head_, identity, body_object);
  body_head_ += ",\"choices\":[";
}

void AnswerFrame::AppendUsageEvent(std::string& out, const Usage& usage) const {
  absl::StrAppend(&out, event_head_, "],\"usage\":");
  AppendUsageObject(out, usage);
  out += "}\n\n";
}

std::string AnswerFrame::WholeBody(size_t num_choices, const Usage& usage,
                                   absl::FunctionRef<void(std::string&, int)> append_choice) const {
  std::string out = body_head_;
  for (size_t index = 0; index < num_choices; ++index) {
    if (index > 0) out += ',';
    append_choice(out, static_cast<int>(index));
  }
  out += "],\"usage\":";
  AppendUsageObject(out, usage);
  out += '}';
  return out;
}

void AppendErrorEvent(std::string& out, absl::string_view error_body) {
  absl::StrAppend(&out, "data: ", error_body, "\n\n");
}

void AppendDoneEvent(std::string& out) { out += "data: [DONE]\n\n"; }

void AppendKeepaliveEvent(std::string& out) { out += ": keep-alive\n\n"; }

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

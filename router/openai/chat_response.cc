#include "router/openai/chat_response.h"

#include "absl/strings/str_cat.h"
#include "router/openai/json_text.h"

namespace tandem::router {
namespace {

constexpr char kFrameEnd[] = "\n\n";

// {"id":...,"object":...,"created":...,"model":...
void AppendIdentity(std::string& out, const ChatIdentity& identity, const char* object) {
  out += "{\"id\":";
  AppendJsonString(out, identity.id);
  absl::StrAppend(&out, ",\"object\":\"", object, "\",\"created\":", identity.created, ",\"model\":");
  AppendJsonString(out, identity.model);
}

void AppendUsageObject(std::string& out, const Usage& usage) {
  absl::StrAppend(&out, "{\"prompt_tokens\":", usage.prompt_tokens, ",\"completion_tokens\":", usage.completion_tokens,
                  ",\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens);
  if (usage.reasoning_tokens.has_value()) {
    absl::StrAppend(&out, ",\"completion_tokens_details\":{\"reasoning_tokens\":", *usage.reasoning_tokens, "}");
  }
  out += '}';
}

}  // namespace

std::string ChatCompletionBody(const ChatIdentity& identity, const ChatAnswer& answer) {
  std::string out;
  AppendIdentity(out, identity, "chat.completion");
  out += ",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":";
  AppendJsonString(out, answer.content);
  if (answer.reasoning_content.has_value()) {
    out += ",\"reasoning_content\":";
    AppendJsonString(out, *answer.reasoning_content);
  }
  absl::StrAppend(&out, "},\"logprobs\":null,\"finish_reason\":\"", AnswerFinishName(answer.finish), "\"}],\"usage\":");
  AppendUsageObject(out, answer.usage);
  out += '}';
  return out;
}

ChatStreamFrames::ChatStreamFrames(const ChatIdentity& identity, bool has_usage_field) {
  head_ = "data: ";
  AppendIdentity(head_, identity, "chat.completion.chunk");
  head_ += ",\"choices\":";
  content_prefix_ = absl::StrCat(head_, "[{\"index\":0,\"delta\":{\"content\":\"");
  reasoning_prefix_ = absl::StrCat(head_, "[{\"index\":0,\"delta\":{\"reasoning_content\":\"");
  end_ = has_usage_field ? ",\"usage\":null}\n\n" : "}\n\n";
  delta_suffix_ = absl::StrCat("\"},\"logprobs\":null,\"finish_reason\":null}]", end_);
}

void ChatStreamFrames::AppendRole(std::string& out) const {
  absl::StrAppend(&out, head_, "[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"", delta_suffix_);
}

void ChatStreamFrames::AppendContent(std::string& out, absl::string_view delta) const {
  out += content_prefix_;
  AppendJsonEscaped(out, delta);
  out += delta_suffix_;
}

void ChatStreamFrames::AppendReasoning(std::string& out, absl::string_view delta) const {
  out += reasoning_prefix_;
  AppendJsonEscaped(out, delta);
  out += delta_suffix_;
}

void ChatStreamFrames::AppendFinish(std::string& out, AnswerFinish finish) const {
  absl::StrAppend(&out, head_, "[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"",
                  AnswerFinishName(finish), "\"}]", end_);
}

void ChatStreamFrames::AppendUsage(std::string& out, const Usage& usage) const {
  absl::StrAppend(&out, head_, "[],\"usage\":");
  AppendUsageObject(out, usage);
  absl::StrAppend(&out, "}", kFrameEnd);
}

void ChatStreamFrames::AppendError(std::string& out, absl::string_view error_body) {
  out += "data: ";
  out.append(error_body.data(), error_body.size());
  out += kFrameEnd;
}

void ChatStreamFrames::AppendDone(std::string& out) { absl::StrAppend(&out, "data: [DONE]", kFrameEnd); }

void ChatStreamFrames::AppendKeepalive(std::string& out) { absl::StrAppend(&out, ": keep-alive", kFrameEnd); }

}  // namespace tandem::router

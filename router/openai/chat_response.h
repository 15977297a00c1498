// The bodies of POST /v1/chat/completions: one whole answer, or the frames of a stream.
//
// A stream's frames share everything but the delta: the text around it is escaped once per request, so that a token
// costs one append of the prefix, one escape of its own text and one append of the suffix.
// Tested by chat_response_test.cc, which parses every body with an independent JSON parser.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "router/openai/finish_reason.h"

namespace tandem::router {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<int64_t> reasoning_tokens;  // where the request thinks; part of completion_tokens
};

// What every body of one request says about it.
struct ChatIdentity {
  std::string id;       // "chatcmpl-..."
  int64_t created = 0;  // Unix seconds
  std::string model;
};

struct ChatAnswer {
  std::string content;
  std::optional<std::string> reasoning_content;  // where the request thinks
  AnswerFinish finish = AnswerFinish::kStop;
  Usage usage;
};

std::string ChatCompletionBody(const ChatIdentity& identity, const ChatAnswer& answer);

// Appends the server-sent events of one stream, in this order: Role once, Content and Reasoning as they come, Finish
// once, Usage at most once, Done once; or Error and Done at any point after Role.
class ChatStreamFrames final {
 public:
  // has_usage_field: the stream ends with usage, so every other chunk says "usage":null.
  ChatStreamFrames(const ChatIdentity& identity, bool has_usage_field);

  void AppendRole(std::string& out) const;
  void AppendContent(std::string& out, absl::string_view delta) const;
  void AppendReasoning(std::string& out, absl::string_view delta) const;
  void AppendFinish(std::string& out, AnswerFinish finish) const;
  void AppendUsage(std::string& out, const Usage& usage) const;
  static void AppendError(std::string& out, absl::string_view error_body);
  static void AppendDone(std::string& out);
  // A comment that clients skip and proxies see: keeps an idle connection alive.
  static void AppendKeepalive(std::string& out);

 private:
  std::string head_;  // up to and including "choices":
  std::string content_prefix_;
  std::string reasoning_prefix_;
  std::string delta_suffix_;
  const char* end_;  // closes a chunk after its choices
};

}  // namespace tandem::router

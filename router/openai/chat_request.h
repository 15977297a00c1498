// The body of POST /v1/chat/completions, parsed and checked as far as the text alone allows.
//
// Unknown fields are tolerated, and a field that would change the answer but is not implemented is refused
// (unsupported_fields.h). Tested by chat_request_test.cc and chat_request_fuzz_test.cc.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/chat/chat_message.h"
#include "router/openai/chat_tools.h"
#include "router/openai/generation_fields.h"
#include "router/openai/json_body.h"
#include "router/openai/response_format.h"

namespace tandem::router {

struct ChatRequest {
  GenerationFields generation;
  std::vector<ChatMessage> messages;  // at least one
  ChatTools tools;
  std::optional<ResponseFormat> response_format;  // nothing for plain text
  bool is_thinking = false;
  bool separates_reasoning = true;  // else the content begins with it
  bool streams_reasoning = true;    // else a stream has it in one piece
};

inline constexpr size_t kMessagesMax = 65536;

// INVALID_ARGUMENT as an OpenAI error that names the field: what ReadJsonBody() refuses, wrong types, bad ranges,
// unsupported fields.
absl::StatusOr<ChatRequest> ParseChatRequest(absl::string_view body);

}  // namespace tandem::router

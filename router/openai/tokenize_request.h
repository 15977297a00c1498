// The bodies of POST /tokenize and /detokenize: SGLang's and vLLM's, which differ little.
// Tested by tokenize_request_test.cc.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/openai/prompt_list.h"

namespace tandem::router {

struct TokenizeRequest {
  std::optional<PromptList> prompts;  // texts; nullopt: the body is a chat request, whose prompt is meant
  bool adds_special_tokens = true;
};

struct DetokenizeRequest {
  PromptList tokens;  // ids
  bool skips_special_tokens = true;
};

// INVALID_ARGUMENT as an OpenAI error that names the field. "model" is not looked at: there is one tokenizer.
absl::StatusOr<TokenizeRequest> ParseTokenizeRequest(absl::string_view body);
absl::StatusOr<DetokenizeRequest> ParseDetokenizeRequest(absl::string_view body);

}  // namespace tandem::router

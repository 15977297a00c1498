// The body of POST /v1/completions, parsed and checked as far as the text alone allows.
//
// As of chat requests: unknown fields are tolerated, and a field that would change the answer but is not implemented is
// refused (unsupported_fields.h). Tested by completion_request_test.cc.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/openai/generation_fields.h"
#include "router/openai/prompt_list.h"

namespace tandem::router {

struct CompletionRequest {
  GenerationFields generation;  // max_new_tokens is always set; num_choices is best_of
  int64_t num_returned = 1;     // n: the likeliest of them, of each prompt
  PromptList prompts;
  bool echoes = false;              // each answer begins with its prompt
  bool adds_special_tokens = true;  // a text gets the beginning-of-sentence token where it has none
};

inline constexpr int64_t kCompletionTokensDefault = 16;

// INVALID_ARGUMENT as an OpenAI error that names the field.
absl::StatusOr<CompletionRequest> ParseCompletionRequest(absl::string_view body);

}  // namespace tandem::router

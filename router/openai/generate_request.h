// The body of POST /generate, SGLang's own API, parsed and checked as far as the text alone allows.
//
// Sampling and length stand in sampling_params, under SGLang's names; otherwise as of completion requests. Tested by
// generate_request_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/openai/generation_fields.h"
#include "router/openai/prompt_list.h"

namespace tandem::router {

struct GenerateRequest {
  GenerationFields generation;          // of no model; max_new_tokens is always set
  PromptList prompts;                   // "text" or "input_ids"
  std::vector<std::string> prompt_ids;  // "rid" as a list: one for each prompt, no two equal; empty = none
  bool has_logprob_texts = false;       // logprobs come with the text of their tokens
};

inline constexpr int64_t kGenerateTokensDefault = 128;

// INVALID_ARGUMENT as an OpenAI error that names the field.
absl::StatusOr<GenerateRequest> ParseGenerateRequest(absl::string_view body);

}  // namespace tandem::router

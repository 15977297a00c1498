// The answers of POST /tokenize and /detokenize: text to ids and back, by the checkpoint's tokenizer, without a worker.
// Pure, for any thread. Tested by tokenize_answers_test.cc.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/prepared_request.h"

namespace tandem::router {

// {"tokens":[...],"count":...,"max_model_len":...}; of a list of prompts tokens and count are lists. A text is encoded
// as /v1/completions does, a chat request as /v1/chat/completions does. INVALID_ARGUMENT names the field.
absl::StatusOr<std::string> TokenizeBody(absl::string_view body, const ModelContext& context);

// {"text":...,"prompt":...}, SGLang's and vLLM's name for the same: a text, or a list of texts.
absl::StatusOr<std::string> DetokenizeBody(absl::string_view body, const ModelContext& context);

}  // namespace tandem::router

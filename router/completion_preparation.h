// From the bytes of a completion request to what the workers are asked; chat_preparation.h for prompts as they are
// (prompt_orders.h). Pure, for any thread. Tested by completion_preparation_test.cc.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/prepared_request.h"

namespace tandem::router {

// INVALID_ARGUMENT or NOT_FOUND (the model) as OpenAI errors that name the field.
absl::StatusOr<PreparedRequest> PrepareCompletion(absl::string_view body, const ModelContext& context);

}  // namespace tandem::router

// From the bytes of a /generate request to what the workers are asked: the prompts as they are (prompt_orders.h), and
// an answer in SGLang's shape. Pure, for any thread. Tested by generate_preparation_test.cc.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/prepared_request.h"

namespace tandem::router {

// INVALID_ARGUMENT as an OpenAI error that names the field.
absl::StatusOr<PreparedRequest> PrepareGenerate(absl::string_view body, const ModelContext& context);

}  // namespace tandem::router

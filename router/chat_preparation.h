// From the bytes of a chat request to what the workers are asked: parse, check, encode, tokenise, plan.
//
// A pure function of the body and of facts that never change, so it may run on any thread: a prompt of a megabyte is
// prepared beside the shard's loop, not inside it. Tested by chat_preparation_test.cc.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/prepared_request.h"

namespace tandem::router {

// INVALID_ARGUMENT or NOT_FOUND (the model) as OpenAI errors that name the field.
absl::StatusOr<PreparedRequest> PrepareChat(absl::string_view body, const ModelContext& context);

}  // namespace tandem::router

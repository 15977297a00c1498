// The last step of preparing a request: the form that its answers must have becomes the automaton that workers enforce.
//
// Apart from the rest, for its work is bounded by CompileBudget and not by the body: the pipeline runs it on the
// preparation thread, and no other client's tokens wait for it. Tested by chat_preparation_test.cc and
// completion_preparation_test.cc.
#pragma once

#include "absl/status/status.h"
#include "router/prepared_request.h"

namespace tandem::router {

// Where the request asks for a form, sets every order's constraint. INVALID_ARGUMENT as an error of the field.
absl::Status CompileForm(const ModelContext& context, PreparedRequest* prepared);

}  // namespace tandem::router

// The request fields that would change the answer and that this router cannot honour yet: each is a 400 that says so,
// unless its value asks for nothing. Silently ignoring one would be a wrong answer.
//
// A feature that lands deletes its line. Tested through chat_request_test.cc and completion_request_test.cc.
#pragma once

#include "absl/status/status.h"
#include "boost/json.hpp"

namespace tandem::router {

// INVALID_ARGUMENT for the first such field of a request.
absl::Status RefuseUnsupportedChatFields(const boost::json::object& request);
absl::Status RefuseUnsupportedCompletionFields(const boost::json::object& request);

}  // namespace tandem::router

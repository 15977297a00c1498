// The request fields that would change the answer and that this router cannot honour yet: each is a 400 that says so,
// unless its value asks for nothing. Silently ignoring one would be a wrong answer.
//
// A feature that lands deletes its line. Tested through the requests' tests.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "boost/json.hpp"

namespace tandem::router {

// INVALID_ARGUMENT for the first such field of a request.
absl::Status RefuseUnsupportedChatFields(const boost::json::object& request);
absl::Status RefuseUnsupportedCompletionFields(const boost::json::object& request);
absl::Status RefuseUnsupportedGenerateFields(const boost::json::object& request);
// path: where the object stands in the request, "sampling_params.".
absl::Status RefuseUnsupportedSamplingFields(const boost::json::object& sampling_params, const std::string& path);

}  // namespace tandem::router

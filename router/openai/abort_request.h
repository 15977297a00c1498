// The body of POST /abort_request. Tested by tokenize_request_test.cc.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::router {

// The id that is meant, exactly; "" = every request ("abort_all"). INVALID_ARGUMENT as an OpenAI error that names the
// field.
absl::StatusOr<std::string> ParseAbortRequest(absl::string_view body);

}  // namespace tandem::router

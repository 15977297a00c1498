// Errors as clients see them: one table from absl::StatusCode to HTTP, one shape for the OpenAI error object.
//
// The field at fault and the machine-readable code travel in the Status as payloads, so that every function of the
// router returns plain absl::Status. Tested by api_error_test.cc.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tandem::router {

// A client's text as it may stand in a message: in quotes, cut after 64 bytes at a character's border.
std::string Quoted(absl::string_view text);

// 400 that names the field: message = "<param>: <what>".
absl::Status FieldError(const std::string& param, const std::string& what);
// The same status with `param` and `code` of its error object set; empty ones stay unset (null).
absl::Status WithDetails(absl::Status status, const std::string& param, const std::string& code);

// The same status with advice for the client's Retry-After header, in whole seconds.
absl::Status WithRetryAfter(absl::Status status, absl::Duration after);
// InfiniteDuration where the status has none.
absl::Duration RetryAfterOf(const absl::Status& status);

// The HTTP status of an error; 200 for OK. Any code that is not in the table is our bug: 500.
int HttpStatusOf(const absl::Status& status);
// {"error":{"message":...,"type":...,"param":...,"code":...}} with no line feed.
std::string ErrorBody(const absl::Status& status);

}  // namespace tandem::router

// JSON as the checkpoint's files need it: strict, and an object that names a key twice is an error (a parser that keeps
// the last would let two readers of one file disagree). Include only from .cc files: it pulls in Boost.JSON.
// Tested by json_test.cc.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "boost/json/value.hpp"

namespace tandem::model {

// INVALID_ARGUMENT "<what>: not JSON: <why> at byte <offset>" or "<what>: key '<key>' appears twice". Nesting is
// limited to 32 levels. NaN and infinity, comments and trailing commas are not JSON.
absl::StatusOr<boost::json::value> ParseJson(absl::string_view text, absl::string_view what);

// Reads and parses a whole file; NOT_FOUND where it is absent, INVALID_ARGUMENT beyond max_bytes.
absl::StatusOr<boost::json::value> ReadJsonFile(const std::string& path, size_t max_bytes);

// NOT_FOUND, or INVALID_ARGUMENT beyond max_bytes; both name the file.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t max_bytes);

}  // namespace tandem::model

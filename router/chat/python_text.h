// Reads text constants out of a Python source file, as text: nothing is run.
//
// A checkpoint may bring the fixed texts of its chat format as constants of a Python file. Read are assignments at the
// start of a line, `NAME = ...` or `NAME: type = ...`, whose value is a string literal or several in a row, perhaps in
// parentheses: single, double or triple quotes, escapes or none (r"..."). Everything else is no constant.
// Tested by python_text_test.cc against what Python itself gives.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::router {

// NOT_FOUND: no such assignment. INVALID_ARGUMENT with the line: its value is no string, or one that is not read here
// (f"...", b"...", \N{...}).
absl::StatusOr<std::string> ReadPythonText(absl::string_view source, absl::string_view name);

// What str.format() gives where each {name} is one of `values`; {{ and }} are braces. INVALID_ARGUMENT for other
// fields.
absl::StatusOr<std::string> FormatPythonText(absl::string_view text,
                                             const std::vector<std::pair<std::string, std::string>>& values);

}  // namespace tandem::router

// Where a member's value stands in the text of a JSON object, for what must keep its own spelling: order of keys,
// digits of numbers. Tested by json_span_test.cc.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"

namespace tandem::router {

// The text of object[key], of the last of equal keys; nothing where there is none. object: valid JSON, an object. Keys
// written with escapes are not found.
std::optional<absl::string_view> FindJsonSpan(absl::string_view object, absl::string_view key);

}  // namespace tandem::router

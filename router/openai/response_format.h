// `response_format` of a chat request: what the model is told of the form of its answer.
//
// It is told, not held to it: nothing constrains the model's text yet. So what promises more (a schema with strict
// true) is refused. Tested by response_format_test.cc.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "boost/json.hpp"

namespace tandem::router {

// JSON text of the value, keys and numbers as the client wrote them in `body`, the text of `request`. Nothing where it
// is absent or says "text". INVALID_ARGUMENT naming the field.
absl::StatusOr<std::optional<std::string>> ParseResponseFormat(const boost::json::object& request,
                                                               absl::string_view body);

}  // namespace tandem::router

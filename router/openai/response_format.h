// `response_format` of a chat request: what the model is told of the form of its answer, and what holds it to it.
// Tested by response_format_test.cc.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "boost/json.hpp"
#include "router/chat/ordered_json.h"

namespace tandem::router {

struct ResponseFormat {
  std::string text;    // JSON of the value, keys and numbers as the client wrote them
  OrderedJson schema;  // of the answer
  std::string field;   // where the schema stands
};

// Nothing where it is absent or says "text"; body: the text of `request`. INVALID_ARGUMENT naming the field.
absl::StatusOr<std::optional<ResponseFormat>> ParseResponseFormat(const boost::json::object& request,
                                                                  absl::string_view body);

}  // namespace tandem::router

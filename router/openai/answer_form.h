// The form that a request wants its answer to have, as the client wrote it. What it means is router/constraints'
// matter.
#pragma once

#include <string>

#include "router/chat/ordered_json.h"

namespace tandem::router {

struct AnswerForm {
  enum class Kind { kSchema, kRegex, kEbnf };

  Kind kind = Kind::kSchema;
  OrderedJson schema;  // of kSchema
  std::string text;    // of the others; not empty, valid UTF-8
  std::string field;   // where it stands in the request, and where errors are laid
};

}  // namespace tandem::router

// The form that a request wants its answer to have, as the client wrote it. What it means is router/constraints'
// matter.
#pragma once

#include <string>
#include <vector>

#include "router/chat/ordered_json.h"

namespace tandem::router {

struct AnswerForm {
  enum class Kind { kSchema, kRegex, kEbnf, kStructuralTag };
  // What is held to a schema inside of free text.
  struct Structure {
    std::string begin;  // begins with a trigger
    OrderedJson schema;
    std::string end;
    std::string field;  // where the schema stands
  };

  Kind kind = Kind::kSchema;
  OrderedJson schema;                 // of kSchema
  std::string text;                   // of kRegex and kEbnf; not empty, valid UTF-8
  std::vector<Structure> structures;  // of kStructuralTag, at least one
  std::vector<std::string> triggers;  // none empty, none part of another, none overlaps
  std::string field;                  // where it stands in the request, and where errors are laid
};

}  // namespace tandem::router

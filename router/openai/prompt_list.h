// The prompts of a request that brings them as they are: texts or token ids, one or several.
// Tested through completion_request_test.cc and generate_request_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "boost/json.hpp"

namespace tandem::router {

// One prompt, in the form that the client gave it.
using PromptInput = std::variant<std::string, std::vector<uint32_t>>;

struct PromptList {
  const char* field = "prompt";     // of the request
  std::vector<PromptInput> inputs;  // at least one, all of the same form; no list of ids is empty
  bool is_list = false;             // they came as a list of prompts

  // Where the prompt at index stands in the request: "prompt" or "prompt[index]".
  std::string PathOf(size_t index) const;
};

enum class PromptForms { kAny, kTexts, kIds };

// value: of request[field]; a text, a list of texts, a list of ids, or a list of lists of ids, as far as forms allows.
// INVALID_ARGUMENT naming the field.
absl::StatusOr<PromptList> ParsePromptList(const boost::json::value& value, const char* field, PromptForms forms);

}  // namespace tandem::router

// `tools`, `tool_choice` and `parallel_tool_calls` of a chat request.
//
// A tool's definition goes into the prompt as the client wrote it, keys in its order and numbers with their digits, so
// it is read from the body's text; what the parsers of the answer need of it is read beside (parsing/tool_catalog.h).
// Tested by chat_tools_test.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "boost/json.hpp"
#include "router/parsing/tool_catalog.h"

namespace tandem::router {

struct ChatTools {
  std::vector<std::string> functions;          // JSON text of each tools[i].function
  std::shared_ptr<const ToolCatalog> catalog;  // of the same; nullptr without tools
  bool may_call = true;                        // tool_choice is not "none"
  bool is_single_call = false;                 // parallel_tool_calls is false
};

inline constexpr size_t kToolsMax = 1024;
inline constexpr size_t kToolNameBytesMax = 128;

// body: the text of `request`. INVALID_ARGUMENT naming the field: tools that are no functions with a name and, where
// they have parameters, a schema of an object; a name given twice; strict, or a tool_choice that calls for a call,
// which nothing enforces yet.
absl::StatusOr<ChatTools> ParseChatTools(const boost::json::object& request, absl::string_view body);

}  // namespace tandem::router

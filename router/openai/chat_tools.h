// `tools`, `tool_choice` and `parallel_tool_calls` of a chat request.
//
// A tool's definition goes into the prompt as the client wrote it, keys in its order and numbers with their digits, so
// it is read from the body's text; what the parsers of the answer need of it is read beside (parsing/tool_catalog.h).
// Tested by chat_tools_test.cc.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "boost/json.hpp"
#include "router/chat/ordered_json.h"
#include "router/parsing/tool_catalog.h"

namespace tandem::router {

struct ChatTools {
  // What a call of the tool must look like.
  struct Definition {
    std::string name;
    std::optional<OrderedJson> parameters;  // a schema
    bool is_strict = false;                 // calls follow the schema whatever tool_choice says
  };
  enum class Choice {
    kAuto,
    kNone,
    kRequired,  // at least one call
    kNamed,     // one call, of `named`
  };

  bool may_call() const { return choice != Choice::kNone; }
  bool must_call() const { return choice == Choice::kRequired || choice == Choice::kNamed; }

  std::vector<std::string> functions;          // JSON text of each tools[i].function
  std::vector<Definition> definitions;         // of the same
  std::shared_ptr<const ToolCatalog> catalog;  // of the same; nullptr without tools
  Choice choice = Choice::kAuto;
  std::string named;
  bool is_single_call = false;  // parallel_tool_calls is false
};

inline constexpr size_t kToolsMax = 1024;
inline constexpr size_t kToolNameBytesMax = 128;

// body: the text of `request`. INVALID_ARGUMENT naming the field: tools that are no functions with a name and, where
// they have parameters, a schema of an object; a name given twice; a tool_choice that calls for a call where there are
// no tools, or for a tool that is not there.
absl::StatusOr<ChatTools> ParseChatTools(const boost::json::object& request, absl::string_view body);

}  // namespace tandem::router

// `messages` of a chat request: roles, content as a string or as text parts, history of tool calls and their results.
// Tested through chat_request_test.cc.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "boost/json.hpp"
#include "router/chat/chat_message.h"

namespace tandem::router {

// INVALID_ARGUMENT naming the element, e.g. "messages[2].content[0].type".
absl::StatusOr<std::vector<ChatMessage>> ParseChatMessages(const boost::json::object& request);

}  // namespace tandem::router

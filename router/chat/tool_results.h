// Puts the tool messages that answer one round of calls in the order of the calls.
// Tested by v32_encoder_test.cc.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/chat/chat_message.h"

namespace tandem::router {

// INVALID_ARGUMENT: `messages[index]: what`.
absl::Status InvalidMessage(size_t index, absl::string_view what);

// Indices of the messages (calls_index, end), all of role tool, in the order of the calls of message calls_index: by
// tool_call_id, or, where none carries an id, by position. INVALID_ARGUMENT where they do not answer exactly these
// calls.
absl::StatusOr<std::vector<size_t>> OrderToolResults(const std::vector<ChatMessage>& messages, size_t calls_index,
                                                     size_t end);

}  // namespace tandem::router

#include "router/chat/tool_results.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tandem::router {

absl::Status InvalidMessage(size_t index, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("messages[", index, "]: ", what));
}

absl::StatusOr<std::vector<size_t>> OrderToolResults(const std::vector<ChatMessage>& messages, size_t calls_index,
                                                     size_t end) {
  const std::vector<ChatToolCall>& calls = messages[calls_index].tool_calls;
  const size_t first = calls_index + 1;
  if (calls.empty()) return InvalidMessage(first, "a tool result without a call before it");
  if (end - first != calls.size()) {
    return InvalidMessage(calls_index,
                          absl::StrCat("has ", calls.size(), " tool calls but ", end - first, " tool results follow"));
  }
  std::vector<size_t> order(calls.size(), end);
  size_t num_with_id = 0;
  for (size_t i = first; i < end; ++i) {
    if (!messages[i].tools.empty() || messages[i].response_format.has_value() || !messages[i].tool_calls.empty()) {
      return InvalidMessage(i, "a message of role tool carries tools, calls or a response format");
    }
    const std::string& id = messages[i].tool_call_id;
    if (id.empty()) continue;
    ++num_with_id;
    size_t call = 0;
    while (call < calls.size() && (calls[call].id != id || order[call] != end)) ++call;
    if (call == calls.size()) {
      return InvalidMessage(
          i, absl::StrCat("tool_call_id \"", id, "\" matches no unanswered call of messages[", calls_index, "]"));
    }
    order[call] = i;
  }
  if (num_with_id == calls.size()) return order;
  if (num_with_id > 0) return InvalidMessage(calls_index, "only some of its tool results carry a tool_call_id");
  for (size_t call = 0; call < calls.size(); ++call) order[call] = first + call;
  return order;
}

}  // namespace tandem::router

// Renders a conversation in the prompt format of DeepSeek-V3.2 and Speciale (DSML tool calls).
//
// The format is plain concatenation of markup and content; the result keeps them apart (MarkedText), so that a client
// cannot write markup. Reasoning of assistant turns is shown only after the last user or developer message: that is the
// format's own rule, so the reference's drop_thinking option changes no byte and has no counterpart here. Developer
// messages before the last one stay (the reference drops them and then fails its own assertion).
// Tested by v32_encoder_test.cc (examples of the format) and chat_vectors_test.cc (official vectors).
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "router/chat/chat_message.h"
#include "router/chat/thinking_mode.h"
#include "router/tokenizer/marked_text.h"

namespace tandem::router {

// Fixed texts that belong to the checkpoint and are read from its folder.
struct V32Texts {
  std::optional<std::string> tools_head;            // from "## Tools" up to and including "<functions>\n"
  std::optional<std::string> response_format_head;  // from "## Response Format:" up to the JSON value
  std::string tools_tail = "\n</functions>\n";      // behind the last tool
};

struct V32Options {
  ThinkingMode thinking_mode = ThinkingMode::kChat;
  bool add_bos = true;
  const V32Texts* texts = nullptr;  // nullptr as good as empty
};

// INVALID_ARGUMENT, naming the message by its index, for conversations that the format cannot express: tool results
// without their calls, fewer or more results than calls, results whose ids match no call, arguments that are no JSON
// object, tools given twice, an assistant turn after the last question with neither reasoning nor calls in thinking
// mode; tools or a response format where the checkpoint brings no text for them.
//
// The answer goes on with a last message that is_prefix: it has no end of sentence, and where it has nothing but
// reasoning, no end of that.
//
// Results of one round of calls are put in the order of the calls by tool_call_id; where none carries an id, by
// position.
absl::StatusOr<MarkedText> EncodeV32(const Conversation& conversation, const V32Options& options);

}  // namespace tandem::router

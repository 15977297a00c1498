// Renders a conversation in the prompt format of DeepSeek-V3.1-Terminus and V3.2-Exp.
//
// All system messages stand together at the front, the tools behind them; every past answer stands without its
// reasoning; behind tool results the model goes on at once, so an answer there never thinks. The format has no
// developer: such a message is the system's, as the OpenAI API has it. Of a past answer that carries `</think>` in its
// content everything up to the first is dropped, unless it follows tool results: that is the format's own rule.
// Tested by v31_encoder_test.cc (the rules) and chat_vectors_test.cc (the template's own output).
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "router/chat/chat_message.h"
#include "router/chat/thinking_mode.h"
#include "router/tokenizer/marked_text.h"

namespace tandem::router {

// Fixed texts around the tools. The format's template ignores tools, so they come from a file that the user names.
struct V31Texts {
  std::optional<std::string> tools_head;
  std::string tools_tail;
};

struct V31Options {
  ThinkingMode thinking_mode = ThinkingMode::kChat;
  const V31Texts* texts = nullptr;  // nullptr as good as empty
};

// INVALID_ARGUMENT, naming the message by its index, for conversations that the format cannot express: tool results
// that do not answer exactly the calls before them, tools or a response format inside a message, tools without a text
// that introduces them, a tool that is no object with a name.
//
// The prompt is open for the answer, unless the last message is the assistant's: behind that it is closed, or, where it
// is_prefix, open in the middle of it.
absl::StatusOr<MarkedText> EncodeV31(const Conversation& conversation, const V31Options& options);

}  // namespace tandem::router

// For tests: conversations as the reference files spell them.
#pragma once

#include <string>
#include <vector>

#include "router/chat/chat_message.h"
#include "router/chat/ordered_json.h"

namespace tandem::router {

// The text of a string value; "" where there is none.
std::string TextOf(const OrderedJson* value);

// `tools`: the function of each, as Python prints it. nullptr: none.
std::vector<std::string> ReadTools(const OrderedJson* tools);

// `messages`. Fails the test where a role is unknown.
std::vector<ChatMessage> ReadMessages(const OrderedJson& json);

}  // namespace tandem::router

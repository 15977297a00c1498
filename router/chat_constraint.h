// Which answers of a chat request are held to a form, and to which: what tool_choice, strict tools and response_format
// together ask of the model. Tested by chat_preparation_test.cc.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "router/chat/prompt_format.h"
#include "router/constraints/answer_constraint.h"
#include "router/openai/chat_request.h"

namespace tandem::router {

// How models of the format write their calls.
CallMarkup MarkupOf(const PromptFormat& format);

// All but where the answer starts; nothing where any text will do. INVALID_ARGUMENT: fields that contradict what is to
// be enforced.
absl::StatusOr<std::optional<AnswerConstraint>> PlanConstraint(const ChatRequest& request, const PromptFormat& format);

}  // namespace tandem::router

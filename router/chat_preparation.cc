#include "router/chat_preparation.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/chat/prompt_format.h"
#include "router/chat_constraint.h"
#include "router/generation_plan.h"
#include "router/openai/api_error.h"
#include "router/openai/chat_request.h"
#include "router/openai/chat_response.h"

namespace tandem::router {
namespace {

constexpr char kMessages[] = "messages";

// A prompt must end where the model is to speak: behind a question or a tool's result. After an assistant's message, or
// without any question, it is a text that has ended already, unless the answer is to go on with that message.
absl::Status CheckAsksSomething(const std::vector<ChatMessage>& messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    const ChatRole role = messages[i].role;
    if (role == ChatRole::kSystem) continue;
    if (role != ChatRole::kAssistant || messages[i].is_prefix) return absl::OkStatus();
    return FieldError("messages", absl::StrCat("the last turn, messages[", i,
                                               "], is the assistant's; a user, developer or tool message must follow, "
                                               "or continue_final_message be true"));
  }
  return FieldError("messages", "must have a user, developer or tool message to answer, got system messages only");
}

// Where the model may have learnt from the prompt how calls are written, its answer is read for them; where it may not
// make any, so that none shows in the content.
AnswerRules PlanParsing(const ChatRequest& request, const PromptFormat& format) {
  const bool has_past_calls = std::any_of(request.messages.begin(), request.messages.end(),
                                          [](const ChatMessage& message) { return !message.tool_calls.empty(); });
  AnswerRules rules;
  if (request.tools.functions.empty() && !has_past_calls) return rules;
  rules.markup = MarkupOf(format);
  rules.catalog = request.tools.catalog;
  rules.shows_calls = request.tools.may_call() && !request.tools.functions.empty();
  rules.is_single_call = request.tools.is_single_call;
  return rules;
}

}  // namespace

absl::StatusOr<PreparedRequest> PrepareChat(absl::string_view body, const ModelContext& context) {
  ASSIGN_OR_RETURN(ChatRequest request, ParseChatRequest(body));
  const GenerationFields& fields = request.generation;
  RETURN_IF_ERROR(CheckModel(fields, context));
  RETURN_IF_ERROR(CheckNumChoices(fields, kMessages, /*num_prompts=*/1, context));
  RETURN_IF_ERROR(CheckAsksSomething(request.messages));

  PreparedRequest prepared;
  SetForm(fields, &prepared);
  prepared.prompt_field = kMessages;

  prepared.rules = PlanParsing(request, context.prompt_format);
  ASSIGN_OR_RETURN(std::optional<AnswerConstraint> constraint, PlanConstraint(request, context.prompt_format));
  Conversation conversation;
  if (prepared.rules.shows_calls && !request.tools.functions.empty()) {
    RETURN_IF_ERROR(AboutField("tools", context.prompt_format.CheckTakesTools()));
    conversation.tools = std::move(request.tools.functions);
  }
  if (request.response_format.has_value() && !request.response_format->text.empty()) {
    // Told where the checkpoint has words for it, enforced in any case.
    if (context.prompt_format.CheckTakesResponseFormat().ok()) {
      conversation.response_format = std::move(request.response_format->text);
    }
  }
  conversation.messages = std::move(request.messages);
  const ThinkingMode mode = request.is_thinking ? ThinkingMode::kThinking : ThinkingMode::kChat;
  const absl::StatusOr<MarkedText> prompt = EncodeChat(conversation, mode, context.prompt_format);
  RETURN_IF_ERROR(AboutField(kMessages, prompt.status()));
  prepared.start = ReasoningSplitter::StateAfterPrompt(*prompt);

  absl::StatusOr<std::vector<TokenId>> tokens = context.tokenizer->Encode(*prompt);
  RETURN_IF_ERROR(AboutField(kMessages, tokens.status()));
  ASSIGN_OR_RETURN(GenerateOrder order, PlanGeneration(fields, *std::move(tokens), kMessages, context));
  if (constraint.has_value()) {
    constraint->starts_with_reasoning = prepared.start == ReasoningSplitter::State::kReasoning;
    if (constraint->calls == AnswerConstraint::Calls::kNone) prepared.rules = AnswerRules();
    prepared.rules.is_single_call = constraint->is_single_call;
    prepared.rules.is_markup_exact = true;
    prepared.constraint = std::move(constraint);
  }
  prepared.orders.push_back(std::move(order));
  ASSIGN_OR_RETURN(prepared.stops, BuildStops(fields));

  prepared.separates_reasoning = request.separates_reasoning;
  prepared.streams_reasoning = request.streams_reasoning || !fields.is_stream;
  const bool shows_reasoning = request.is_thinking && request.separates_reasoning;
  const ChatFormat::Options form = {shows_reasoning, fields.includes_usage, fields.wants_logprobs};
  prepared.make_format = [form, tokenizer = context.tokenizer](const AnswerIdentity& identity) {
    return std::make_unique<ChatFormat>(identity, form, tokenizer);
  };
  return prepared;
}

}  // namespace tandem::router

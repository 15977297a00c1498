#include "router/chat_preparation.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/chat/v32_encoder.h"
#include "router/generation_plan.h"
#include "router/openai/api_error.h"
#include "router/openai/chat_request.h"
#include "router/openai/chat_response.h"

namespace tandem::router {
namespace {

constexpr char kMessages[] = "messages";

// A prompt must end where the model is to speak: behind a question or a tool's result. After an assistant's message, or
// without any question, it is a text that has ended already (to go on with one is a feature of its own).
absl::Status CheckAsksSomething(const std::vector<ChatMessage>& messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    const ChatRole role = messages[i].role;
    if (role == ChatRole::kSystem) continue;
    if (role != ChatRole::kAssistant) return absl::OkStatus();
    return FieldError("messages", absl::StrCat("the last turn, messages[", i,
                                               "], is the assistant's; a user, developer or tool message must follow "
                                               "(to continue an answer is not supported)"));
  }
  return FieldError("messages", "must have a user, developer or tool message to answer, got system messages only");
}

}  // namespace

absl::StatusOr<PreparedRequest> PrepareChat(absl::string_view body, const ModelContext& context) {
  ASSIGN_OR_RETURN(ChatRequest request, ParseChatRequest(body));
  const GenerationFields& fields = request.generation;
  RETURN_IF_ERROR(CheckGeneration(fields, /*num_prompts=*/1, context));
  RETURN_IF_ERROR(CheckAsksSomething(request.messages));

  PreparedRequest prepared;
  prepared.model = fields.model;
  prepared.is_stream = fields.is_stream;
  prepared.includes_usage = fields.includes_usage;
  prepared.prompt_field = kMessages;

  V32Options options;
  options.thinking_mode = request.is_thinking ? ThinkingMode::kThinking : ThinkingMode::kChat;
  Conversation conversation;
  conversation.messages = std::move(request.messages);
  const absl::StatusOr<MarkedText> prompt = EncodeV32(conversation, options);
  RETURN_IF_ERROR(AboutField(kMessages, prompt.status()));
  prepared.start = ReasoningSplitter::StateAfterPrompt(prompt->text());

  absl::StatusOr<std::vector<TokenId>> tokens = context.tokenizer->Encode(*prompt);
  RETURN_IF_ERROR(AboutField(kMessages, tokens.status()));
  ASSIGN_OR_RETURN(GenerateOrder order, PlanGeneration(fields, *std::move(tokens), kMessages, context));
  prepared.orders.push_back(std::move(order));
  ASSIGN_OR_RETURN(prepared.stops, BuildStops(fields));

  const ChatFormat::Options form = {request.is_thinking, fields.includes_usage, fields.wants_logprobs};
  prepared.make_format = [form, tokenizer = context.tokenizer](const AnswerIdentity& identity) {
    return std::make_unique<const ChatFormat>(identity, form, tokenizer);
  };
  return prepared;
}

}  // namespace tandem::router

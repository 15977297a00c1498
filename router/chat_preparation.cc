#include "router/chat_preparation.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "router/chat/v32_encoder.h"
#include "router/openai/api_error.h"

namespace tandem::router {
namespace {

absl::Status CheckModel(const ChatRequest& request, const ChatContext& context) {
  if (request.model == context.served_model_name) return absl::OkStatus();
  return WithDetails(absl::NotFoundError(absl::StrCat("model: there is no model ", Quoted(request.model),
                                                      "; this server has ", Quoted(context.served_model_name))),
                     "model", "model_not_found");
}

// The error of a later stage, laid at the field that it is about.
absl::Status About(const char* param, const absl::Status& status) {
  if (status.ok() || status.code() != absl::StatusCode::kInvalidArgument) return status;
  return FieldError(param, std::string(status.message()));
}

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

absl::Status CheckPromptFits(size_t num_prompt_tokens, const ChatContext& context) {
  const int64_t num_tokens = static_cast<int64_t>(num_prompt_tokens);
  if (num_tokens < context.context_length) return absl::OkStatus();
  return WithDetails(
      FieldError("messages", absl::StrCat("the prompt has ", num_tokens, " tokens; the context holds ",
                                          context.context_length, ", of which at least 1 is the answer's")),
      "", "context_length_exceeded");
}

absl::Status PlanSampling(const ChatRequest& request, const ChatContext& context, GenerateOrder* order) {
  const SamplingDefaults& defaults = context.facts.sampling;
  order->temperature = static_cast<float>(request.temperature.value_or(defaults.temperature));
  order->top_p = static_cast<float>(request.top_p.value_or(defaults.top_p));
  order->top_k = request.top_k.value_or(defaults.top_k);
  order->seed = request.seed.has_value() ? *request.seed : base::RandomId();

  const int64_t num_left = context.context_length - static_cast<int64_t>(order->prompt.size());
  const int64_t max_new_tokens = std::min(request.max_new_tokens.value_or(num_left), num_left);
  order->max_new_tokens =
      static_cast<uint32_t>(std::min<int64_t>(max_new_tokens, std::numeric_limits<uint32_t>::max()));

  if (!request.ignores_eos) order->stop_token_ids = context.facts.eos_token_ids;
  for (size_t i = 0; i < request.stop_token_ids.size(); ++i) {
    const uint32_t id = request.stop_token_ids[i];
    if (id >= context.facts.vocab_size) {
      return FieldError(absl::StrCat("stop_token_ids[", i, "]"),
                        absl::StrCat("is ", id, ", the vocabulary has ", context.facts.vocab_size, " ids"));
    }
    order->stop_token_ids.push_back(id);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PreparedChat> PrepareChat(absl::string_view body, const ChatContext& context) {
  PreparedChat prepared;
  ASSIGN_OR_RETURN(prepared.request, ParseChatRequest(body));
  RETURN_IF_ERROR(CheckModel(prepared.request, context));

  RETURN_IF_ERROR(CheckAsksSomething(prepared.request.messages));

  V32Options format;
  format.thinking_mode = prepared.request.is_thinking ? ThinkingMode::kThinking : ThinkingMode::kChat;
  Conversation conversation;
  conversation.messages = std::exchange(prepared.request.messages, {});
  const absl::StatusOr<MarkedText> prompt = EncodeV32(conversation, format);
  RETURN_IF_ERROR(About("messages", prompt.status()));
  prepared.start = ReasoningSplitter::StateAfterPrompt(prompt->text());

  absl::StatusOr<std::vector<TokenId>> tokens = context.tokenizer->Encode(*prompt);
  RETURN_IF_ERROR(About("messages", tokens.status()));
  prepared.order.prompt = *std::move(tokens);
  RETURN_IF_ERROR(CheckPromptFits(prepared.order.prompt.size(), context));
  RETURN_IF_ERROR(PlanSampling(prepared.request, context, &prepared.order));

  absl::StatusOr<StopSet> stops = StopSet::Build(prepared.request.stop);
  RETURN_IF_ERROR(About("stop", stops.status()));
  prepared.stops = *std::move(stops);
  return prepared;
}

}  // namespace tandem::router

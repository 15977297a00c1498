#include "router/completion_preparation.h"

#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "router/generation_plan.h"
#include "router/openai/completion_request.h"
#include "router/openai/completion_response.h"
#include "router/prompt_orders.h"

namespace tandem::router {

absl::StatusOr<PreparedRequest> PrepareCompletion(absl::string_view body, const ModelContext& context) {
  ASSIGN_OR_RETURN(CompletionRequest request, ParseCompletionRequest(body));
  const GenerationFields& fields = request.generation;
  RETURN_IF_ERROR(CheckModel(fields, context));

  PreparedRequest prepared;
  SetForm(fields, &prepared);
  prepared.prompt_field = request.prompts.field;

  CompletionFormat::Options form;
  form.has_usage_field = fields.includes_usage;
  form.has_logprobs = fields.wants_logprobs;
  form.choices_per_prompt = static_cast<int>(fields.num_choices);
  ASSIGN_OR_RETURN(prepared.orders, PlanPrompts(std::move(request.prompts), request.adds_special_tokens, fields,
                                                context, request.echoes ? &form.echoes : nullptr));
  ASSIGN_OR_RETURN(prepared.stops, BuildStops(fields));
  prepared.make_format = [form = std::move(form), tokenizer = context.tokenizer](const AnswerIdentity& identity) {
    return std::make_unique<CompletionFormat>(identity, form, tokenizer);
  };
  return prepared;
}

}  // namespace tandem::router

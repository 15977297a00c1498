#include "router/generate_preparation.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/generation_plan.h"
#include "router/openai/generate_request.h"
#include "router/openai/generate_response.h"
#include "router/prompt_orders.h"

namespace tandem::router {

absl::StatusOr<PreparedRequest> PrepareGenerate(absl::string_view body, const ModelContext& context) {
  ASSIGN_OR_RETURN(GenerateRequest request, ParseGenerateRequest(body));
  GenerationFields& fields = request.generation;
  fields.model = context.served_model_name;

  PreparedRequest prepared;
  SetForm(fields, &prepared);
  prepared.prompt_ids = std::move(request.prompt_ids);
  prepared.prompt_field = request.prompts.field;
  prepared.allows_comments = false;  // its clients take every line of a stream for data
  prepared.wants_tokens = true;

  GenerateFormat::Options form;
  form.choices_per_prompt = static_cast<int>(fields.num_choices);
  form.is_list = request.prompts.is_list;
  form.has_logprobs = fields.wants_logprobs;
  form.has_top_logprobs = fields.num_top_logprobs > 0;
  form.has_logprob_texts = request.has_logprob_texts;
  ASSIGN_OR_RETURN(prepared.orders, PlanPrompts(std::move(request.prompts), /*adds_special_tokens=*/true, fields,
                                                context, /*texts=*/nullptr));
  for (const GenerateOrder& order : prepared.orders) {
    GenerateFormat::Prompt prompt = {"", static_cast<int64_t>(order.prompt.size())};
    if (fields.prompt_logprobs_begin.has_value()) {
      prompt.logprob_tokens.assign(order.prompt.begin() + *fields.prompt_logprobs_begin, order.prompt.end());
    }
    form.prompts.push_back(std::move(prompt));
  }
  ASSIGN_OR_RETURN(prepared.constraint, PlanForm(fields));
  ASSIGN_OR_RETURN(prepared.stops, BuildStops(fields));
  prepared.make_format = [form = std::move(form), tokenizer = context.tokenizer](const AnswerIdentity& identity) {
    GenerateFormat::Options options = form;
    for (size_t i = 0; i < options.prompts.size(); ++i) options.prompts[i].id = identity.prompt_ids[i];
    return std::make_unique<GenerateFormat>(std::move(options), tokenizer);
  };
  return prepared;
}

}  // namespace tandem::router

#include "router/generation_plan.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "proto/prompt_logprobs.h"
#include "router/openai/api_error.h"
#include "router/prompt_truncation.h"

namespace tandem::router {
namespace {

absl::Status CheckTokenId(const std::string& param, uint32_t id, const ModelContext& context) {
  if (id < context.facts.vocab_size) return absl::OkStatus();
  return FieldError(param, absl::StrCat("is ", id, ", the vocabulary has ", context.facts.vocab_size, " ids"));
}

absl::Status CheckPromptFits(size_t num_prompt_tokens, const char* prompt_field, const ModelContext& context) {
  const int64_t num_tokens = static_cast<int64_t>(num_prompt_tokens);
  if (num_tokens < context.context_length) return absl::OkStatus();
  return WithDetails(
      FieldError(prompt_field, absl::StrCat("the prompt has ", num_tokens, " tokens; the context holds ",
                                            context.context_length, ", of which at least 1 is the answer's")),
      "", "context_length_exceeded");
}

// The first token of a prompt has no logprob: nothing comes before it.
absl::Status PlanPromptLogprobs(const GenerationFields& fields, GenerateOrder* order) {
  if (!fields.prompt_logprobs_begin.has_value()) return absl::OkStatus();
  const int64_t num_tokens = static_cast<int64_t>(order->prompt.size());
  const int64_t begin = *fields.prompt_logprobs_begin;
  if (begin >= num_tokens) {
    return FieldError(fields.prompt_logprobs_field,
                      absl::StrCat("is ", begin, ", the prompt has ", num_tokens, " tokens"));
  }
  const int64_t num_max = proto::PromptLogprobsMax(fields.num_top_logprobs);
  if (num_tokens - begin - 1 > num_max) {
    return FieldError(fields.prompt_logprobs_field,
                      absl::StrCat("asks for the logprobs of ", num_tokens - begin - 1, " prompt tokens; with ",
                                   fields.num_top_logprobs, " likeliest ones at each there may be at most ", num_max));
  }
  if (begin + 1 < num_tokens) order->prompt_logprobs_begin = static_cast<uint32_t>(begin + 1);
  return absl::OkStatus();
}

absl::Status PlanStopping(const GenerationFields& fields, const ModelContext& context, GenerateOrder* order) {
  const int64_t num_left = context.context_length - static_cast<int64_t>(order->prompt.size());
  const int64_t max_new_tokens =
      std::min({fields.max_new_tokens.value_or(num_left), num_left, int64_t{std::numeric_limits<uint32_t>::max()}});
  order->is_prompt_only = max_new_tokens == 0;
  order->max_new_tokens = static_cast<uint32_t>(std::max<int64_t>(max_new_tokens, 1));
  order->min_new_tokens = static_cast<uint32_t>(std::min(fields.min_new_tokens, max_new_tokens));
  if (!fields.ignores_eos) order->stop_token_ids = context.facts.eos_token_ids;
  for (size_t i = 0; i < fields.stop_token_ids.size(); ++i) {
    const uint32_t id = fields.stop_token_ids[i];
    RETURN_IF_ERROR(CheckTokenId(absl::StrCat(fields.sampling_path, "stop_token_ids[", i, "]"), id, context));
    order->stop_token_ids.push_back(id);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckModel(const GenerationFields& fields, const ModelContext& context) {
  if (fields.model == context.served_model_name) return absl::OkStatus();
  return WithDetails(absl::NotFoundError(absl::StrCat("model: there is no model ", Quoted(fields.model),
                                                      "; this server has ", Quoted(context.served_model_name))),
                     "model", "model_not_found");
}

absl::Status CheckNumChoices(const GenerationFields& fields, const char* prompt_field, size_t num_prompts,
                             const ModelContext& context) {
  if (num_prompts > static_cast<size_t>(context.choices_max)) {
    return FieldError(prompt_field,
                      absl::StrCat("must have at most ", context.choices_max, " prompts, got ", num_prompts));
  }
  const int64_t num_choices = fields.num_choices * static_cast<int64_t>(num_prompts);
  if (num_choices <= context.choices_max) return absl::OkStatus();
  return FieldError(
      fields.sampling_path + "n",
      absl::StrCat("is ", fields.num_choices, num_prompts == 1 ? "" : absl::StrCat(" for ", num_prompts, " prompts"),
                   "; one request may have at most ", context.choices_max, " answers"));
}

void SetForm(const GenerationFields& fields, PreparedRequest* prepared) {
  prepared->model = fields.model;
  prepared->id = fields.id;
  prepared->is_stream = fields.is_stream;
  prepared->includes_usage = fields.includes_usage;
}

absl::StatusOr<GenerateOrder> PlanGeneration(const GenerationFields& fields, std::vector<TokenId> prompt,
                                             const char* prompt_field, const ModelContext& context) {
  GenerateOrder order;
  order.prompt = std::move(prompt);
  if (context.allows_auto_truncate) {
    order.num_truncated = TruncatePrompt(context.context_length, fields.max_new_tokens, &order.prompt);
  }
  RETURN_IF_ERROR(CheckPromptFits(order.prompt.size(), prompt_field, context));
  const SamplingDefaults& defaults = context.facts.sampling;
  order.temperature = static_cast<float>(fields.temperature.value_or(defaults.temperature));
  order.top_p = static_cast<float>(fields.top_p.value_or(defaults.top_p));
  order.top_k = fields.top_k.value_or(defaults.top_k);
  order.min_p = static_cast<float>(fields.min_p);
  order.repetition_penalty = static_cast<float>(fields.repetition_penalty);
  order.frequency_penalty = static_cast<float>(fields.frequency_penalty);
  order.presence_penalty = static_cast<float>(fields.presence_penalty);
  for (const auto& [token, bias] : fields.logit_bias) {
    RETURN_IF_ERROR(CheckTokenId(absl::StrCat(fields.sampling_path, "logit_bias[", token, "]"), token, context));
    order.logit_bias.emplace_back(token, bias);
  }
  order.seed = fields.seed.has_value() ? *fields.seed : base::RandomId();
  order.wants_logprobs = fields.wants_logprobs;
  order.num_top_logprobs = static_cast<uint32_t>(fields.num_top_logprobs);
  RETURN_IF_ERROR(PlanPromptLogprobs(fields, &order));
  order.num_choices = static_cast<uint32_t>(fields.num_choices);
  order.cache_salt = fields.cache_salt;
  order.priority = fields.priority;
  RETURN_IF_ERROR(PlanStopping(fields, context, &order));
  return order;
}

absl::Status CheckMayEnd(const GenerationFields& fields, absl::string_view asked_by) {
  if (!fields.ignores_eos) return absl::OkStatus();
  return FieldError(fields.sampling_path + "ignore_eos",
                    absl::StrCat("must be false where ", asked_by, " says how the answer ends"));
}

absl::StatusOr<std::optional<AnswerConstraint>> PlanForm(const GenerationFields& fields) {
  if (!fields.form.has_value()) return std::nullopt;
  RETURN_IF_ERROR(CheckMayEnd(fields, fields.form->field));
  return AnswerConstraint{.form = fields.form};
}

absl::StatusOr<std::shared_ptr<const StopSet>> BuildStops(const GenerationFields& fields) {
  if (fields.stop.empty()) return std::shared_ptr<const StopSet>();
  absl::StatusOr<StopSet> stops = StopSet::Build(fields.stop);
  RETURN_IF_ERROR(AboutField((fields.sampling_path + "stop").c_str(), stops.status()));
  return std::make_shared<const StopSet>(*std::move(stops));
}

absl::Status AboutField(const char* param, const absl::Status& status) {
  if (status.ok() || status.code() != absl::StatusCode::kInvalidArgument) return status;
  return FieldError(param, std::string(status.message()));
}

}  // namespace tandem::router

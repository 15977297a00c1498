#include "router/completion_preparation.h"

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/generation_plan.h"
#include "router/openai/api_error.h"
#include "router/openai/completion_request.h"
#include "router/openai/completion_response.h"

namespace tandem::router {
namespace {

absl::StatusOr<std::vector<TokenId>> EncodeText(const std::string& text, const std::string& path,
                                                bool adds_special_tokens, const ModelContext& context) {
  absl::StatusOr<std::vector<TokenId>> tokens = context.tokenizer->Encode(text, Tokenizer::AddedTokens::kMatch);
  RETURN_IF_ERROR(AboutField(path.c_str(), tokens.status()));
  const std::optional<TokenId> bos = context.facts.bos_token_id;
  if (adds_special_tokens && bos.has_value() && (tokens->empty() || tokens->front() != *bos)) {
    tokens->insert(tokens->begin(), *bos);
  }
  if (tokens->empty()) return FieldError(path, "has no tokens, must have at least one");
  return tokens;
}

absl::Status CheckIds(const std::vector<uint32_t>& ids, const std::string& path, const ModelContext& context) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < context.facts.vocab_size) continue;
    return FieldError(absl::StrCat(path, "[", i, "]"),
                      absl::StrCat("is ", ids[i], ", the vocabulary has ", context.facts.vocab_size, " ids"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PreparedRequest> PrepareCompletion(absl::string_view body, const ModelContext& context) {
  ASSIGN_OR_RETURN(CompletionRequest request, ParseCompletionRequest(body));
  const GenerationFields& fields = request.generation;
  RETURN_IF_ERROR(CheckGeneration(fields, request.prompts.size(), context));

  PreparedRequest prepared;
  prepared.model = fields.model;
  prepared.is_stream = fields.is_stream;
  prepared.includes_usage = fields.includes_usage;
  prepared.prompt_field = "prompt";

  CompletionFormat::Options form;
  form.has_usage_field = fields.includes_usage;
  form.has_logprobs = fields.wants_logprobs;
  form.choices_per_prompt = static_cast<int>(fields.num_choices);
  for (size_t i = 0; i < request.prompts.size(); ++i) {
    const std::string path = PromptPath(request, i);
    std::vector<TokenId> tokens;
    if (auto* text = std::get_if<std::string>(&request.prompts[i])) {
      ASSIGN_OR_RETURN(tokens, EncodeText(*text, path, request.adds_special_tokens, context));
      if (request.echoes) form.echoes.push_back(std::move(*text));
    } else {
      tokens = std::move(std::get<std::vector<uint32_t>>(request.prompts[i]));
      RETURN_IF_ERROR(CheckIds(tokens, path, context));
      if (request.echoes) form.echoes.push_back(context.tokenizer->Decode(tokens));
    }
    ASSIGN_OR_RETURN(GenerateOrder order, PlanGeneration(fields, std::move(tokens), path.c_str(), context));
    prepared.orders.push_back(std::move(order));
  }
  ASSIGN_OR_RETURN(prepared.stops, BuildStops(fields));
  prepared.make_format = [form = std::move(form), tokenizer = context.tokenizer](const AnswerIdentity& identity) {
    return std::make_unique<const CompletionFormat>(identity, form, tokenizer);
  };
  return prepared;
}

}  // namespace tandem::router

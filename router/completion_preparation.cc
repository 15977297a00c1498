#include "router/completion_preparation.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "router/generation_plan.h"
#include "router/openai/completion_request.h"
#include "router/openai/completion_response.h"
#include "router/prompt_orders.h"
#include "router/tokenizer/incremental_detokenizer.h"

namespace tandem::router {
namespace {

int64_t CountCharacters(absl::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

// Every token with the place where its text begins in the echo.
std::vector<TokenLogprob> PlaceTokens(const std::vector<TokenId>& tokens, bool has_added_bos,
                                      const Tokenizer& tokenizer) {
  std::vector<TokenLogprob> placed;
  IncrementalDetokenizer detokenizer(tokenizer);
  int64_t num_characters = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    TokenLogprob entry;
    entry.token = tokens[i];
    entry.text_offset = num_characters;
    placed.push_back(std::move(entry));
    if (i == 0 && has_added_bos) continue;
    std::string text;
    detokenizer.Append(absl::MakeConstSpan(&tokens[i], 1), &text);
    num_characters += CountCharacters(text);
  }
  return placed;
}

}  // namespace

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
  form.num_returned = static_cast<int>(request.num_returned);
  if (request.num_returned < fields.num_choices) request.generation.wants_logprobs = true;  // to tell which are best
  std::vector<PromptText> texts;
  ASSIGN_OR_RETURN(prepared.orders, PlanPrompts(std::move(request.prompts), request.adds_special_tokens, fields,
                                                context, request.echoes ? &texts : nullptr));
  for (size_t i = 0; i < texts.size(); ++i) {
    CompletionFormat::Echo echo = {std::move(texts[i].text)};
    echo.num_characters = CountCharacters(echo.text);
    if (form.has_logprobs) {
      echo.tokens = PlaceTokens(prepared.orders[i].prompt, texts[i].has_added_bos, *context.tokenizer);
    }
    form.echoes.push_back(std::move(echo));
  }
  ASSIGN_OR_RETURN(prepared.constraint, PlanForm(fields));
  ASSIGN_OR_RETURN(prepared.stops, BuildStops(fields));
  prepared.make_format = [form = std::move(form), tokenizer = context.tokenizer](const AnswerIdentity& identity) {
    return std::make_unique<CompletionFormat>(identity, form, tokenizer);
  };
  return prepared;
}

}  // namespace tandem::router

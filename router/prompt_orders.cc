#include "router/prompt_orders.h"

#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/generation_plan.h"
#include "router/openai/api_error.h"

namespace tandem::router {

absl::StatusOr<std::vector<TokenId>> EncodePrompt(const std::string& text, const std::string& path,
                                                  bool adds_special_tokens, const ModelContext& context) {
  absl::StatusOr<std::vector<TokenId>> tokens = context.tokenizer->Encode(text, Tokenizer::AddedTokens::kMatch);
  RETURN_IF_ERROR(AboutField(path.c_str(), tokens.status()));
  const std::optional<TokenId> bos = context.facts.bos_token_id;
  if (adds_special_tokens && bos.has_value() && (tokens->empty() || tokens->front() != *bos)) {
    tokens->insert(tokens->begin(), *bos);
  }
  return tokens;
}

absl::Status CheckTokenIds(const std::vector<uint32_t>& ids, const std::string& path, const ModelContext& context) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < context.facts.vocab_size) continue;
    return FieldError(absl::StrCat(path, "[", i, "]"),
                      absl::StrCat("is ", ids[i], ", the vocabulary has ", context.facts.vocab_size, " ids"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<GenerateOrder>> PlanPrompts(PromptList prompts, bool adds_special_tokens,
                                                       const GenerationFields& fields, const ModelContext& context,
                                                       std::vector<std::string>* texts) {
  RETURN_IF_ERROR(CheckNumChoices(fields, prompts.field, prompts.inputs.size(), context));
  std::vector<GenerateOrder> orders;
  for (size_t i = 0; i < prompts.inputs.size(); ++i) {
    const std::string path = prompts.PathOf(i);
    std::vector<TokenId> tokens;
    if (auto* text = std::get_if<std::string>(&prompts.inputs[i])) {
      ASSIGN_OR_RETURN(tokens, EncodePrompt(*text, path, adds_special_tokens, context));
      if (tokens.empty()) return FieldError(path, "has no tokens, must have at least one");
      if (texts != nullptr) texts->push_back(std::move(*text));
    } else {
      tokens = std::move(std::get<std::vector<uint32_t>>(prompts.inputs[i]));
      RETURN_IF_ERROR(CheckTokenIds(tokens, path, context));
      if (texts != nullptr) texts->push_back(context.tokenizer->Decode(tokens));
    }
    ASSIGN_OR_RETURN(GenerateOrder order, PlanGeneration(fields, std::move(tokens), path.c_str(), context));
    orders.push_back(std::move(order));
  }
  return orders;
}

}  // namespace tandem::router

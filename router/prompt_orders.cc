#include "router/prompt_orders.h"

#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
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

namespace {

// given: the client's text, "" where it gave ids.
PromptText TextOf(const std::string& given, const GenerateOrder& order, const ModelContext& context) {
  if (given.empty() || order.num_truncated > 0) return {context.tokenizer->Decode(order.prompt)};
  const std::optional<TokenId> bos = context.facts.bos_token_id;
  const bool has_added_bos =
      bos.has_value() && order.prompt.front() == *bos && !absl::StartsWith(given, context.tokenizer->TokenBytes(*bos));
  return {given, has_added_bos};
}

}  // namespace

absl::StatusOr<std::vector<GenerateOrder>> PlanPrompts(PromptList prompts, bool adds_special_tokens,
                                                       const GenerationFields& fields, const ModelContext& context,
                                                       std::vector<PromptText>* texts) {
  RETURN_IF_ERROR(CheckNumChoices(fields, prompts.field, prompts.inputs.size(), context));
  std::vector<GenerateOrder> orders;
  for (size_t i = 0; i < prompts.inputs.size(); ++i) {
    const std::string path = prompts.PathOf(i);
    std::vector<TokenId> tokens;
    std::string given;  // as a text
    if (auto* text = std::get_if<std::string>(&prompts.inputs[i])) {
      ASSIGN_OR_RETURN(tokens, EncodePrompt(*text, path, adds_special_tokens, context));
      if (tokens.empty()) return FieldError(path, "has no tokens, must have at least one");
      given = std::move(*text);
    } else {
      tokens = std::move(std::get<std::vector<uint32_t>>(prompts.inputs[i]));
      RETURN_IF_ERROR(CheckTokenIds(tokens, path, context));
    }
    ASSIGN_OR_RETURN(GenerateOrder order, PlanGeneration(fields, std::move(tokens), path.c_str(), context));
    if (texts != nullptr) texts->push_back(TextOf(given, order, context));
    orders.push_back(std::move(order));
  }
  return orders;
}

}  // namespace tandem::router

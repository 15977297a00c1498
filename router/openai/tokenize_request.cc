#include "router/openai/tokenize_request.h"

#include "base/status_macros.h"
#include "boost/json.hpp"
#include "router/openai/api_error.h"
#include "router/openai/json_body.h"
#include "router/openai/json_fields.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

absl::Status ReadTokenizeRequest(const json::object& request, TokenizeRequest* parsed) {
  const json::value* prompt = FindMember(request, "prompt");
  const bool is_chat = FindMember(request, "messages") != nullptr;
  if (prompt != nullptr && is_chat) return FieldError("messages", "is allowed only where prompt is not sent");
  if (prompt == nullptr && !is_chat) return FieldError("prompt", "is required, or messages");
  ASSIGN_OR_RETURN(const std::optional<bool> adds, OptionalBool(request, "add_special_tokens", "add_special_tokens"));
  parsed->adds_special_tokens = adds.value_or(true);
  if (is_chat) return absl::OkStatus();
  ASSIGN_OR_RETURN(parsed->prompts, ParsePromptList(*prompt, "prompt", PromptForms::kTexts));
  return absl::OkStatus();
}

absl::Status ReadDetokenizeRequest(const json::object& request, DetokenizeRequest* parsed) {
  const json::value* tokens = FindMember(request, "tokens");
  if (tokens == nullptr) return FieldError("tokens", "is required");
  ASSIGN_OR_RETURN(parsed->tokens, ParsePromptList(*tokens, "tokens", PromptForms::kIds));
  ASSIGN_OR_RETURN(const std::optional<bool> skips,
                   OptionalBool(request, "skip_special_tokens", "skip_special_tokens"));
  parsed->skips_special_tokens = skips.value_or(true);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizeRequest> ParseTokenizeRequest(absl::string_view body) {
  TokenizeRequest parsed;
  RETURN_IF_ERROR(
      ReadJsonBody(body, [&parsed](const json::object& request) { return ReadTokenizeRequest(request, &parsed); }));
  return parsed;
}

absl::StatusOr<DetokenizeRequest> ParseDetokenizeRequest(absl::string_view body) {
  DetokenizeRequest parsed;
  RETURN_IF_ERROR(
      ReadJsonBody(body, [&parsed](const json::object& request) { return ReadDetokenizeRequest(request, &parsed); }));
  return parsed;
}

}  // namespace tandem::router

#include "router/openai/completion_request.h"

#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "boost/json.hpp"
#include "router/openai/api_error.h"
#include "router/openai/json_body.h"
#include "router/openai/json_fields.h"
#include "router/openai/unsupported_fields.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

// best_of draws more answers than it returns and keeps the likeliest: only as many as n is nothing of the kind.
absl::Status CheckBestOf(const json::object& request, int64_t num_choices) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> best_of,
                   OptionalInteger(request, "best_of", "best_of", 1, std::numeric_limits<int64_t>::max()));
  if (!best_of.has_value() || *best_of == num_choices) return absl::OkStatus();
  return WithDetails(
      FieldError("best_of", absl::StrCat("is not supported; only the value of n, ", num_choices, ", may be sent")), "",
      "unsupported_parameter");
}

absl::Status ReadCompletionRequest(const json::object& request, CompletionRequest* parsed) {
  GenerationFields& fields = parsed->generation;
  ASSIGN_OR_RETURN(fields, ParseGenerationFields(request));
  const json::value* prompt = FindMember(request, "prompt");
  if (prompt == nullptr) return FieldError("prompt", "is required");
  ASSIGN_OR_RETURN(parsed->prompts, ParsePromptList(*prompt, "prompt", PromptForms::kAny));
  RETURN_IF_ERROR(RefuseUnsupportedCompletionFields(request));
  RETURN_IF_ERROR(CheckBestOf(request, fields.num_choices));
  if (!fields.max_new_tokens.has_value()) fields.max_new_tokens = kCompletionTokensDefault;
  if (fields.min_new_tokens > *fields.max_new_tokens) {
    return FieldError("min_tokens", absl::StrCat("is ", fields.min_new_tokens, ", above max_tokens, ",
                                                 *fields.max_new_tokens, " by default"));
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> logprobs,
                   OptionalInteger(request, "logprobs", "logprobs", 0, kTopLogprobsMax));
  fields.wants_logprobs = logprobs.has_value();
  fields.num_top_logprobs = static_cast<int>(logprobs.value_or(0));
  ASSIGN_OR_RETURN(const std::optional<bool> echo, OptionalBool(request, "echo", "echo"));
  parsed->echoes = echo.value_or(false);
  if (parsed->echoes && fields.wants_logprobs) {
    return WithDetails(
        FieldError("echo", "is not supported together with logprobs: a prompt's logprobs are not computed"), "",
        "unsupported_parameter");
  }
  ASSIGN_OR_RETURN(const std::optional<bool> adds, OptionalBool(request, "add_special_tokens", "add_special_tokens"));
  parsed->adds_special_tokens = adds.value_or(true);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompletionRequest> ParseCompletionRequest(absl::string_view body) {
  CompletionRequest parsed;
  RETURN_IF_ERROR(
      ReadJsonBody(body, [&parsed](const json::object& request) { return ReadCompletionRequest(request, &parsed); }));
  return parsed;
}

}  // namespace tandem::router

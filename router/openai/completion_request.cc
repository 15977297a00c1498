#include "router/openai/completion_request.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "boost/json.hpp"
#include "router/openai/api_error.h"
#include "router/openai/json_body.h"
#include "router/openai/json_fields.h"
#include "router/openai/response_format.h"
#include "router/openai/unsupported_fields.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

// best_of draws more answers than are returned and keeps the likeliest: none can be sent before all have ended.
absl::Status ParseBestOf(const json::object& request, CompletionRequest* parsed) {
  GenerationFields& fields = parsed->generation;
  parsed->num_returned = fields.num_choices;
  ASSIGN_OR_RETURN(const std::optional<int64_t> best_of,
                   OptionalInteger(request, "best_of", "best_of", 1, kChoicesMax));
  if (!best_of.has_value()) return absl::OkStatus();
  if (*best_of < fields.num_choices) {
    return FieldError("best_of", absl::StrCat("is ", *best_of, ", below n, ", fields.num_choices));
  }
  if (*best_of > fields.num_choices && fields.is_stream) {
    return FieldError("best_of", "may be above n only where stream is not true");
  }
  fields.num_choices = *best_of;
  return absl::OkStatus();
}

absl::Status ReadCompletionRequest(const json::object& request, absl::string_view body, CompletionRequest* parsed) {
  GenerationFields& fields = parsed->generation;
  ASSIGN_OR_RETURN(fields, ParseGenerationFields(request, {.path = "", .max_tokens_min = 0}));
  const json::value* prompt = FindMember(request, "prompt");
  if (prompt == nullptr) return FieldError("prompt", "is required");
  ASSIGN_OR_RETURN(parsed->prompts, ParsePromptList(*prompt, "prompt", PromptForms::kAny));
  RETURN_IF_ERROR(RefuseUnsupportedCompletionFields(request));
  ASSIGN_OR_RETURN(std::optional<ResponseFormat> format, ParseResponseFormat(request, body));
  RETURN_IF_ERROR(CheckOneForm(format, fields.form));
  if (format.has_value()) fields.form = std::move(format->form);  // no model is told: the prompt is the client's
  RETURN_IF_ERROR(ParseBestOf(request, parsed));
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
  if (parsed->echoes && fields.wants_logprobs) fields.prompt_logprobs_begin = 0;
  ASSIGN_OR_RETURN(const std::optional<bool> adds, OptionalBool(request, "add_special_tokens", "add_special_tokens"));
  parsed->adds_special_tokens = adds.value_or(true);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompletionRequest> ParseCompletionRequest(absl::string_view body) {
  CompletionRequest parsed;
  RETURN_IF_ERROR(
      ReadJsonBody(body, [&](const json::object& request) { return ReadCompletionRequest(request, body, &parsed); }));
  return parsed;
}

}  // namespace tandem::router

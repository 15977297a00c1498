#include "router/openai/completion_request.h"

#include <limits>
#include <optional>
#include <utility>

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

absl::Status WrongKind(const std::string& path, const char* expected, const json::value& found) {
  return FieldError(path, absl::StrCat("must be ", expected, ", got ", KindName(found)));
}

absl::StatusOr<CompletionPrompt> ParseText(const json::value& value, const std::string& path) {
  if (!value.is_string()) return WrongKind(path, "a string as the first one", value);
  return CompletionPrompt(std::string(value.get_string().data(), value.get_string().size()));
}

absl::StatusOr<CompletionPrompt> ParseIds(const json::value& value, const std::string& path) {
  if (!value.is_array()) return WrongKind(path, "an array of token ids as the first one", value);
  const json::array& array = value.get_array();
  if (array.empty()) return FieldError(path, "must have at least one token id");
  std::vector<uint32_t> ids;
  ids.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const std::string element = absl::StrCat(path, "[", i, "]");
    if (!array[i].is_int64()) return WrongKind(element, "a token id", array[i]);
    const int64_t id = array[i].get_int64();
    if (id < 0 || id > std::numeric_limits<uint32_t>::max()) {
      return FieldError(element, absl::StrCat("must be a token id, got ", id));
    }
    ids.push_back(static_cast<uint32_t>(id));
  }
  return CompletionPrompt(std::move(ids));
}

// A string, a list of strings, a list of ids, or a list of lists of ids: the first element says which list.
absl::Status ParsePrompts(const json::object& request, CompletionRequest* parsed) {
  const json::value* value = FindMember(request, "prompt");
  if (value == nullptr) return FieldError("prompt", "is required");
  if (value->is_string()) {
    ASSIGN_OR_RETURN(CompletionPrompt prompt, ParseText(*value, "prompt"));
    parsed->prompts.push_back(std::move(prompt));
    return absl::OkStatus();
  }
  if (!value->is_array()) return WrongKind("prompt", "a string, token ids, or a list of either", *value);
  const json::array& array = value->get_array();
  if (array.empty()) return FieldError("prompt", "must have at least one prompt");
  if (array[0].is_number()) {
    ASSIGN_OR_RETURN(CompletionPrompt prompt, ParseIds(*value, "prompt"));
    parsed->prompts.push_back(std::move(prompt));
    return absl::OkStatus();
  }
  if (!array[0].is_string() && !array[0].is_array()) {
    return WrongKind("prompt[0]", "a string, a token id, or an array of token ids", array[0]);
  }
  if (array.size() > static_cast<size_t>(kChoicesMax)) {
    return FieldError("prompt", absl::StrCat("must have at most ", kChoicesMax, " prompts, got ", array.size()));
  }
  parsed->is_list = true;
  for (size_t i = 0; i < array.size(); ++i) {
    const std::string path = absl::StrCat("prompt[", i, "]");
    ASSIGN_OR_RETURN(CompletionPrompt prompt,
                     array[0].is_string() ? ParseText(array[i], path) : ParseIds(array[i], path));
    parsed->prompts.push_back(std::move(prompt));
  }
  return absl::OkStatus();
}

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
  RETURN_IF_ERROR(ParsePrompts(request, parsed));
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

std::string PromptPath(const CompletionRequest& request, size_t index) {
  return request.is_list ? absl::StrCat("prompt[", index, "]") : "prompt";
}

}  // namespace tandem::router

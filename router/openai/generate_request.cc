#include "router/openai/generate_request.h"

#include <limits>
#include <optional>
#include <set>
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

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

absl::Status ParsePrompts(const json::object& request, GenerateRequest* parsed) {
  const json::value* text = FindMember(request, "text");
  const json::value* ids = FindMember(request, "input_ids");
  if (text != nullptr && ids != nullptr) return FieldError("input_ids", "is allowed only where text is not sent");
  if (text == nullptr && ids == nullptr) return FieldError("text", "is required, or input_ids");
  if (text != nullptr) {
    ASSIGN_OR_RETURN(parsed->prompts, ParsePromptList(*text, "text", PromptForms::kTexts));
  } else {
    ASSIGN_OR_RETURN(parsed->prompts, ParsePromptList(*ids, "input_ids", PromptForms::kIds));
  }
  return absl::OkStatus();
}

// One id for the request, or a list of one for each prompt.
absl::Status ParseIds(const json::object& request, GenerateRequest* parsed) {
  const json::value* value = FindMember(request, "rid");
  if (value == nullptr || !value->is_array()) {
    ASSIGN_OR_RETURN(parsed->generation.id, ParseRequestId(value, "rid"));
    return absl::OkStatus();
  }
  const json::array& ids = value->get_array();
  if (ids.size() != parsed->prompts.inputs.size()) {
    return FieldError("rid", absl::StrCat("has ", ids.size(), " ids for ", parsed->prompts.inputs.size(), " prompts"));
  }
  std::set<std::string> seen;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string path = absl::StrCat("rid[", i, "]");
    ASSIGN_OR_RETURN(std::string id, ParseRequestId(&ids[i], path));
    if (!seen.insert(id).second) return FieldError(path, absl::StrCat("is ", Quoted(id), " for the second time"));
    parsed->prompt_ids.push_back(std::move(id));
  }
  return absl::OkStatus();
}

absl::Status ParseLogprobs(const json::object& request, GenerateRequest* parsed) {
  GenerationFields& fields = parsed->generation;
  ASSIGN_OR_RETURN(const std::optional<bool> wants, OptionalBool(request, "return_logprob", "return_logprob"));
  ASSIGN_OR_RETURN(const std::optional<int64_t> top,
                   OptionalInteger(request, "top_logprobs_num", "top_logprobs_num", 0, kTopLogprobsMax));
  fields.wants_logprobs = wants.value_or(false);
  fields.num_top_logprobs = static_cast<int>(top.value_or(0));
  if (fields.num_top_logprobs > 0 && !fields.wants_logprobs) {
    return FieldError("top_logprobs_num", "is allowed only where return_logprob is true");
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> begin,
                   OptionalInteger(request, "logprob_start_len", "logprob_start_len", -1, kInt64Max));
  fields.prompt_logprobs_field = "logprob_start_len";
  if (fields.wants_logprobs && begin.value_or(-1) >= 0) fields.prompt_logprobs_begin = begin;
  ASSIGN_OR_RETURN(const std::optional<bool> texts,
                   OptionalBool(request, "return_text_in_logprobs", "return_text_in_logprobs"));
  parsed->has_logprob_texts = texts.value_or(false);
  return absl::OkStatus();
}

absl::Status ReadGenerateRequest(const json::object& request, GenerateRequest* parsed) {
  GenerationFields& fields = parsed->generation;
  RETURN_IF_ERROR(ParsePrompts(request, parsed));
  RETURN_IF_ERROR(ParseIds(request, parsed));
  RETURN_IF_ERROR(ParseSharingFields(request, &parsed->generation));
  ASSIGN_OR_RETURN(fields.is_stream, ParseStreamField(request));
  ASSIGN_OR_RETURN(const json::object* sampling, OptionalObject(request, "sampling_params", "sampling_params"));
  if (sampling != nullptr) {
    const SamplingNames names = SglangSamplingNames();
    RETURN_IF_ERROR(ParseSamplingFields(*sampling, names, &fields));
    RETURN_IF_ERROR(RefuseUnsupportedSamplingFields(*sampling, names.path));
  }
  RETURN_IF_ERROR(RefuseUnsupportedGenerateFields(request));
  if (!fields.max_new_tokens.has_value()) fields.max_new_tokens = kGenerateTokensDefault;
  if (fields.min_new_tokens > *fields.max_new_tokens) {
    return FieldError(
        "sampling_params.min_new_tokens",
        absl::StrCat("is ", fields.min_new_tokens, ", above max_new_tokens, ", *fields.max_new_tokens, " by default"));
  }
  return ParseLogprobs(request, parsed);
}

}  // namespace

absl::StatusOr<GenerateRequest> ParseGenerateRequest(absl::string_view body) {
  GenerateRequest parsed;
  RETURN_IF_ERROR(
      ReadJsonBody(body, [&parsed](const json::object& request) { return ReadGenerateRequest(request, &parsed); }));
  return parsed;
}

}  // namespace tandem::router

#include "router/openai/unsupported_fields.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "router/openai/api_error.h"
#include "router/openai/json_fields.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

using IsHarmless = bool (*)(const json::value&);

bool Never(const json::value&) { return false; }
bool IsFalse(const json::value& value) { return value.is_bool() && !value.get_bool(); }
bool IsTrue(const json::value& value) { return value.is_bool() && value.get_bool(); }
bool IsZero(const json::value& value) { return value.is_number() && value.to_number<double>() == 0; }
bool IsOne(const json::value& value) { return value.is_number() && value.to_number<double>() == 1; }
bool IsEmptyArray(const json::value& value) { return value.is_array() && value.get_array().empty(); }
bool IsEmptyString(const json::value& value) { return value == ""; }
bool IsNoToolChoice(const json::value& value) { return value == "none" || value == "auto"; }
bool IsTextOnly(const json::value& value) {
  return value.is_array() && value.get_array().size() == 1 && value.get_array()[0] == "text";
}

struct UnsupportedField {
  const char* name;
  IsHarmless is_harmless;
  const char* supported;  // what may be sent
};

// Of every endpoint.
constexpr UnsupportedField kCommonFields[] = {
    {"prompt_logprobs", IsZero, "0"},
    {"guided_json", Never, "null"},
    {"guided_regex", Never, "null"},
    {"guided_grammar", Never, "null"},
    {"guided_choice", Never, "null"},
    {"custom_logit_processor", Never, "null"},
    {"lora_path", Never, "null"},
    {"session_params", Never, "null"},
    {"return_token_ids", IsFalse, "false"},
    {"return_prompt_token_ids", IsFalse, "false"},
    {"return_hidden_states", IsFalse, "false"},
};

// Beside temperature and its like: of the request itself, or of /generate's sampling_params.
constexpr UnsupportedField kSamplingFields[] = {
    {"stop_regex", IsEmptyArray, "[]"},
    {"no_stop_trim", IsFalse, "false"},
    {"include_stop_str_in_output", IsFalse, "false"},
    {"skip_special_tokens", IsTrue, "true"},
};

constexpr UnsupportedField kGenerateFields[] = {
    {"input_embeds", Never, "null"},           {"image_data", IsEmptyArray, "[]"},
    {"video_data", IsEmptyArray, "[]"},        {"audio_data", IsEmptyArray, "[]"},
    {"token_ids_logprob", IsEmptyArray, "[]"}, {"return_routed_experts", IsFalse, "false"},
};

constexpr UnsupportedField kChatFields[] = {
    {"best_of", IsOne, "1"},
    {"functions", IsEmptyArray, "[]"},
    {"function_call", IsNoToolChoice, "\"none\" or \"auto\""},
    {"modalities", IsTextOnly, "[\"text\"]"},
    {"audio", Never, "null"},
    {"prediction", Never, "null"},
    {"web_search_options", Never, "null"},
    {"input_ids", Never, "null"},
    {"echo", IsFalse, "false"},
};

constexpr UnsupportedField kCompletionFields[] = {
    {"suffix", IsEmptyString, "\"\""},
    {"prompt_embeds", Never, "null"},
    {"tools", IsEmptyArray, "[]"},
};

template <size_t kSize>
absl::Status RefuseFields(const json::object& object, const UnsupportedField (&fields)[kSize],
                          const std::string& path = "") {
  for (const UnsupportedField& field : fields) {
    const json::value* value = FindMember(object, field.name);
    if (value == nullptr || field.is_harmless(*value)) continue;
    return WithDetails(
        FieldError(path + field.name, absl::StrCat("is not supported; only ", field.supported, " may be sent")), "",
        "unsupported_parameter");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RefuseUnsupportedChatFields(const json::object& request) {
  RETURN_IF_ERROR(RefuseFields(request, kCommonFields));
  RETURN_IF_ERROR(RefuseFields(request, kSamplingFields));
  return RefuseFields(request, kChatFields);
}

absl::Status RefuseUnsupportedCompletionFields(const json::object& request) {
  RETURN_IF_ERROR(RefuseFields(request, kCommonFields));
  RETURN_IF_ERROR(RefuseFields(request, kSamplingFields));
  return RefuseFields(request, kCompletionFields);
}

absl::Status RefuseUnsupportedGenerateFields(const json::object& request) {
  RETURN_IF_ERROR(RefuseFields(request, kCommonFields));
  return RefuseFields(request, kGenerateFields);
}

absl::Status RefuseUnsupportedSamplingFields(const json::object& sampling_params, const std::string& path) {
  return RefuseFields(sampling_params, kSamplingFields, path);
}

}  // namespace tandem::router

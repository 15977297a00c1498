#include "router/openai/generation_fields.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/openai/api_error.h"
#include "router/openai/json_fields.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
constexpr double kGreedyTemperature = 1e-6;  // below it the logits' quotient overflows: argmax is what was meant
constexpr double kLogitBiasAbsMax = 100;

// OpenAI's seed is an integer of any sign; its bits are the seed.
absl::StatusOr<std::optional<uint64_t>> ParseSeed(const json::object& request) {
  const json::value* value = FindMember(request, "seed");
  if (value != nullptr && value->is_uint64()) return value->get_uint64();
  ASSIGN_OR_RETURN(std::optional<int64_t> seed,
                   OptionalInteger(request, "seed", "seed", std::numeric_limits<int64_t>::min(), kInt64Max));
  if (!seed.has_value()) return std::nullopt;
  return static_cast<uint64_t>(*seed);
}

absl::StatusOr<double> NumberOr(const json::object& request, const char* name, double min, double max,
                                double otherwise) {
  ASSIGN_OR_RETURN(const std::optional<double> number, OptionalNumber(request, name, name, min, max));
  return number.value_or(otherwise);
}

// A token id as OpenAI's logit_bias spells it: a decimal number as a key. One spelling only, so that no id comes twice.
absl::StatusOr<uint32_t> ParseTokenKey(absl::string_view key) {
  uint32_t id = 0;
  if (absl::SimpleAtoi(key, &id) && absl::StrCat(id) == key) return id;
  return FieldError("logit_bias", absl::StrCat("keys must be token ids, got ", Quoted(key)));
}

absl::Status ParseLogitBias(const json::object& request, GenerationFields* parsed) {
  ASSIGN_OR_RETURN(const json::object* biases, OptionalObject(request, "logit_bias", "logit_bias"));
  if (biases == nullptr) return absl::OkStatus();
  if (biases->size() > kLogitBiasMax) {
    return FieldError("logit_bias", absl::StrCat("must have at most ", kLogitBiasMax, " tokens, got ", biases->size()));
  }
  for (const auto& entry : *biases) {
    const absl::string_view key(entry.key().data(), entry.key().size());
    ASSIGN_OR_RETURN(const uint32_t id, ParseTokenKey(key));
    const std::string param = absl::StrCat("logit_bias[", id, "]");
    if (!entry.value().is_number()) {
      return FieldError(param, absl::StrCat("must be a number, got ", KindName(entry.value())));
    }
    const double bias = entry.value().to_number<double>();
    if (!(bias >= -kLogitBiasAbsMax && bias <= kLogitBiasAbsMax)) {
      return FieldError(param,
                        absl::StrCat("must be from ", -kLogitBiasAbsMax, " to ", kLogitBiasAbsMax, ", got ", bias));
    }
    parsed->logit_bias.emplace_back(id, static_cast<float>(bias));
  }
  return absl::OkStatus();
}

absl::Status ParseSampling(const json::object& request, GenerationFields* parsed) {
  ASSIGN_OR_RETURN(parsed->temperature, OptionalNumber(request, "temperature", "temperature", 0, 2));
  if (parsed->temperature.has_value() && *parsed->temperature < kGreedyTemperature) parsed->temperature = 0;
  ASSIGN_OR_RETURN(parsed->top_p, OptionalNumber(request, "top_p", "top_p", 0, 1));
  if (parsed->top_p == 0.0) return FieldError("top_p", "must be above 0, got 0");
  ASSIGN_OR_RETURN(std::optional<int64_t> top_k,
                   OptionalInteger(request, "top_k", "top_k", -1, std::numeric_limits<int32_t>::max()));
  if (top_k.has_value()) parsed->top_k = *top_k == -1 ? 0 : static_cast<int32_t>(*top_k);
  ASSIGN_OR_RETURN(parsed->min_p, NumberOr(request, "min_p", 0, 1, 0));
  ASSIGN_OR_RETURN(parsed->repetition_penalty, NumberOr(request, "repetition_penalty", 0, 2, 1));
  // As the workers see it: a float of 0 would divide logits by nothing.
  if (static_cast<float>(parsed->repetition_penalty) == 0.0f) {
    return FieldError("repetition_penalty", absl::StrCat("must be above 0, got ", parsed->repetition_penalty));
  }
  ASSIGN_OR_RETURN(parsed->frequency_penalty, NumberOr(request, "frequency_penalty", -2, 2, 0));
  ASSIGN_OR_RETURN(parsed->presence_penalty, NumberOr(request, "presence_penalty", -2, 2, 0));
  RETURN_IF_ERROR(ParseLogitBias(request, parsed));
  ASSIGN_OR_RETURN(parsed->seed, ParseSeed(request));
  ASSIGN_OR_RETURN(std::optional<int64_t> num_choices, OptionalInteger(request, "n", "n", 1, kChoicesMax));
  parsed->num_choices = num_choices.value_or(1);
  return absl::OkStatus();
}

absl::Status ParseLengths(const json::object& request, GenerationFields* parsed) {
  ASSIGN_OR_RETURN(std::optional<int64_t> older, OptionalInteger(request, "max_tokens", "max_tokens", 1, kInt64Max));
  ASSIGN_OR_RETURN(std::optional<int64_t> newer,
                   OptionalInteger(request, "max_completion_tokens", "max_completion_tokens", 1, kInt64Max));
  if (older.has_value() && newer.has_value() && *older != *newer) {
    return FieldError("max_tokens",
                      absl::StrCat("is ", *older, " but max_completion_tokens is ", *newer, "; send one of them"));
  }
  parsed->max_new_tokens = newer.has_value() ? newer : older;
  ASSIGN_OR_RETURN(std::optional<int64_t> min_tokens,
                   OptionalInteger(request, "min_tokens", "min_tokens", 0, kInt64Max));
  parsed->min_new_tokens = min_tokens.value_or(0);
  if (parsed->max_new_tokens.has_value() && parsed->min_new_tokens > *parsed->max_new_tokens) {
    return FieldError("min_tokens",
                      absl::StrCat("is ", parsed->min_new_tokens, ", above max_tokens, ", *parsed->max_new_tokens));
  }
  return absl::OkStatus();
}

absl::Status AppendStop(const json::value& value, const std::string& path, std::vector<std::string>* stop) {
  if (!value.is_string()) return FieldError(path, absl::StrCat("must be a string, got ", KindName(value)));
  if (value.get_string().empty()) return FieldError(path, "must not be empty");
  stop->emplace_back(value.get_string().data(), value.get_string().size());
  return absl::OkStatus();
}

absl::Status ParseStop(const json::object& request, GenerationFields* parsed) {
  const json::value* value = FindMember(request, "stop");
  if (value == nullptr) return absl::OkStatus();
  if (value->is_string()) return AppendStop(*value, "stop", &parsed->stop);
  if (!value->is_array()) {
    return FieldError("stop", absl::StrCat("must be a string or an array of strings, got ", KindName(*value)));
  }
  const json::array& array = value->get_array();
  if (array.size() > kStopStringsMax) {
    return FieldError("stop", absl::StrCat("must have at most ", kStopStringsMax, " strings, got ", array.size()));
  }
  for (size_t i = 0; i < array.size(); ++i) {
    RETURN_IF_ERROR(AppendStop(array[i], absl::StrCat("stop[", i, "]"), &parsed->stop));
  }
  return absl::OkStatus();
}

absl::Status CheckStopSize(const GenerationFields& parsed) {
  size_t num_bytes = 0;
  for (const std::string& stop : parsed.stop) num_bytes += stop.size();
  if (num_bytes <= kStopBytesMax) return absl::OkStatus();
  return FieldError("stop", absl::StrCat("must have at most ", kStopBytesMax, " bytes in all, got ", num_bytes));
}

absl::Status ParseStopTokenIds(const json::object& request, GenerationFields* parsed) {
  const json::value* value = FindMember(request, "stop_token_ids");
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_array()) {
    return FieldError("stop_token_ids", absl::StrCat("must be an array of integers, got ", KindName(*value)));
  }
  const json::array& array = value->get_array();
  if (array.size() > kStopTokenIdsMax) {
    return FieldError("stop_token_ids",
                      absl::StrCat("must have at most ", kStopTokenIdsMax, " ids, got ", array.size()));
  }
  for (size_t i = 0; i < array.size(); ++i) {
    const std::string path = absl::StrCat("stop_token_ids[", i, "]");
    if (!array[i].is_int64()) return FieldError(path, absl::StrCat("must be an integer, got ", KindName(array[i])));
    const int64_t id = array[i].get_int64();
    if (id < 0 || id > std::numeric_limits<uint32_t>::max()) {
      return FieldError(path, absl::StrCat("must be a token id, got ", id));
    }
    parsed->stop_token_ids.push_back(static_cast<uint32_t>(id));
  }
  return absl::OkStatus();
}

absl::Status ParseStreaming(const json::object& request, GenerationFields* parsed) {
  ASSIGN_OR_RETURN(std::optional<bool> is_stream, OptionalBool(request, "stream", "stream"));
  parsed->is_stream = is_stream.value_or(false);
  ASSIGN_OR_RETURN(const json::object* options, OptionalObject(request, "stream_options", "stream_options"));
  if (options == nullptr) return absl::OkStatus();
  if (!parsed->is_stream) return FieldError("stream_options", "is allowed only where stream is true");
  ASSIGN_OR_RETURN(std::optional<bool> includes_usage,
                   OptionalBool(*options, "include_usage", "stream_options.include_usage"));
  parsed->includes_usage = includes_usage.value_or(false);
  ASSIGN_OR_RETURN(std::optional<bool> continuous,
                   OptionalBool(*options, "continuous_usage_stats", "stream_options.continuous_usage_stats"));
  if (continuous.value_or(false)) {
    return FieldError("stream_options.continuous_usage_stats", "is not supported; only false may be sent");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GenerationFields> ParseGenerationFields(const json::object& request) {
  GenerationFields parsed;
  ASSIGN_OR_RETURN(std::optional<std::string> model, OptionalString(request, "model", "model"));
  if (!model.has_value()) return FieldError("model", "is required");
  parsed.model = *std::move(model);
  RETURN_IF_ERROR(ParseSampling(request, &parsed));
  RETURN_IF_ERROR(ParseLengths(request, &parsed));
  RETURN_IF_ERROR(ParseStop(request, &parsed));
  RETURN_IF_ERROR(CheckStopSize(parsed));
  RETURN_IF_ERROR(ParseStopTokenIds(request, &parsed));
  ASSIGN_OR_RETURN(std::optional<bool> ignores_eos, OptionalBool(request, "ignore_eos", "ignore_eos"));
  parsed.ignores_eos = ignores_eos.value_or(false);
  RETURN_IF_ERROR(ParseStreaming(request, &parsed));
  return parsed;
}

}  // namespace tandem::router

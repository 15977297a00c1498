#include "router/openai/generation_fields.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/openai/api_error.h"
#include "router/openai/json_fields.h"
#include "router/openai/response_format.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
constexpr double kGreedyTemperature = 1e-6;  // below it the logits' quotient overflows: argmax is what was meant
constexpr double kLogitBiasAbsMax = 100;

// OpenAI's seed is an integer of any sign; its bits are the seed.
absl::StatusOr<std::optional<uint64_t>> ParseSeed(const json::object& request, const SamplingNames& names) {
  const json::value* value = FindMember(request, names.seed);
  if (value != nullptr && value->is_uint64()) return value->get_uint64();
  ASSIGN_OR_RETURN(std::optional<int64_t> seed, OptionalInteger(request, names.seed, names.path + names.seed,
                                                                std::numeric_limits<int64_t>::min(), kInt64Max));
  if (!seed.has_value()) return std::nullopt;
  return static_cast<uint64_t>(*seed);
}

absl::StatusOr<double> NumberOr(const json::object& request, const SamplingNames& names, const char* name, double min,
                                double max, double otherwise) {
  ASSIGN_OR_RETURN(const std::optional<double> number, OptionalNumber(request, name, names.path + name, min, max));
  return number.value_or(otherwise);
}

// A token id as OpenAI's logit_bias spells it: a decimal number as a key. One spelling only, so that no id comes twice.
absl::StatusOr<uint32_t> ParseTokenKey(absl::string_view key, const std::string& param) {
  uint32_t id = 0;
  if (absl::SimpleAtoi(key, &id) && absl::StrCat(id) == key) return id;
  return FieldError(param, absl::StrCat("keys must be token ids, got ", Quoted(key)));
}

absl::Status ParseLogitBias(const json::object& request, const SamplingNames& names, GenerationFields* parsed) {
  const std::string field = names.path + "logit_bias";
  ASSIGN_OR_RETURN(const json::object* biases, OptionalObject(request, "logit_bias", field));
  if (biases == nullptr) return absl::OkStatus();
  if (biases->size() > kLogitBiasMax) {
    return FieldError(field, absl::StrCat("must have at most ", kLogitBiasMax, " tokens, got ", biases->size()));
  }
  for (const auto& entry : *biases) {
    const absl::string_view key(entry.key().data(), entry.key().size());
    ASSIGN_OR_RETURN(const uint32_t id, ParseTokenKey(key, field));
    const std::string param = absl::StrCat(field, "[", id, "]");
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

absl::Status ParseSampling(const json::object& request, const SamplingNames& names, GenerationFields* parsed) {
  ASSIGN_OR_RETURN(parsed->temperature, OptionalNumber(request, "temperature", names.path + "temperature", 0, 2));
  if (parsed->temperature.has_value() && *parsed->temperature < kGreedyTemperature) parsed->temperature = 0;
  ASSIGN_OR_RETURN(parsed->top_p, OptionalNumber(request, "top_p", names.path + "top_p", 0, 1));
  if (parsed->top_p == 0.0) return FieldError(names.path + "top_p", "must be above 0, got 0");
  ASSIGN_OR_RETURN(std::optional<int64_t> top_k,
                   OptionalInteger(request, "top_k", names.path + "top_k", -1, std::numeric_limits<int32_t>::max()));
  if (top_k.has_value()) parsed->top_k = *top_k == -1 ? 0 : static_cast<int32_t>(*top_k);
  ASSIGN_OR_RETURN(parsed->min_p, NumberOr(request, names, "min_p", 0, 1, 0));
  ASSIGN_OR_RETURN(parsed->repetition_penalty, NumberOr(request, names, "repetition_penalty", 0, 2, 1));
  // As the workers see it: a float of 0 would divide logits by nothing.
  if (static_cast<float>(parsed->repetition_penalty) == 0.0f) {
    return FieldError(names.path + "repetition_penalty",
                      absl::StrCat("must be above 0, got ", parsed->repetition_penalty));
  }
  ASSIGN_OR_RETURN(parsed->frequency_penalty, NumberOr(request, names, "frequency_penalty", -2, 2, 0));
  ASSIGN_OR_RETURN(parsed->presence_penalty, NumberOr(request, names, "presence_penalty", -2, 2, 0));
  RETURN_IF_ERROR(ParseLogitBias(request, names, parsed));
  ASSIGN_OR_RETURN(parsed->seed, ParseSeed(request, names));
  ASSIGN_OR_RETURN(std::optional<int64_t> num_choices, OptionalInteger(request, "n", names.path + "n", 1, kChoicesMax));
  parsed->num_choices = num_choices.value_or(1);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int64_t>> ParseMaxTokens(const json::object& request, const SamplingNames& names) {
  ASSIGN_OR_RETURN(
      std::optional<int64_t> older,
      OptionalInteger(request, names.max_tokens, names.path + names.max_tokens, names.max_tokens_min, kInt64Max));
  if (names.max_tokens_too == nullptr) return older;
  ASSIGN_OR_RETURN(std::optional<int64_t> newer,
                   OptionalInteger(request, names.max_tokens_too, names.path + names.max_tokens_too,
                                   names.max_tokens_min, kInt64Max));
  if (older.has_value() && newer.has_value() && *older != *newer) {
    return FieldError(names.path + names.max_tokens,
                      absl::StrCat("is ", *older, " but ", names.max_tokens_too, " is ", *newer, "; send one of them"));
  }
  return newer.has_value() ? newer : older;
}

absl::Status ParseLengths(const json::object& request, const SamplingNames& names, GenerationFields* parsed) {
  ASSIGN_OR_RETURN(parsed->max_new_tokens, ParseMaxTokens(request, names));
  const std::string min_field = names.path + names.min_tokens;
  ASSIGN_OR_RETURN(std::optional<int64_t> min_tokens,
                   OptionalInteger(request, names.min_tokens, min_field, 0, kInt64Max));
  parsed->min_new_tokens = min_tokens.value_or(0);
  if (parsed->max_new_tokens.has_value() && parsed->min_new_tokens > *parsed->max_new_tokens) {
    return FieldError(min_field, absl::StrCat("is ", parsed->min_new_tokens, ", above ", names.max_tokens, ", ",
                                              *parsed->max_new_tokens));
  }
  return absl::OkStatus();
}

absl::Status AppendStop(const json::value& value, const std::string& path, std::vector<std::string>* stop) {
  if (!value.is_string()) return FieldError(path, absl::StrCat("must be a string, got ", KindName(value)));
  if (value.get_string().empty()) return FieldError(path, "must not be empty");
  stop->emplace_back(value.get_string().data(), value.get_string().size());
  return absl::OkStatus();
}

absl::Status ParseStop(const json::object& request, const SamplingNames& names, GenerationFields* parsed) {
  const std::string field = names.path + "stop";
  const json::value* value = FindMember(request, "stop");
  if (value == nullptr) return absl::OkStatus();
  if (value->is_string()) return AppendStop(*value, field, &parsed->stop);
  if (!value->is_array()) {
    return FieldError(field, absl::StrCat("must be a string or an array of strings, got ", KindName(*value)));
  }
  const json::array& array = value->get_array();
  if (array.size() > kStopStringsMax) {
    return FieldError(field, absl::StrCat("must have at most ", kStopStringsMax, " strings, got ", array.size()));
  }
  for (size_t i = 0; i < array.size(); ++i) {
    RETURN_IF_ERROR(AppendStop(array[i], absl::StrCat(field, "[", i, "]"), &parsed->stop));
  }
  return absl::OkStatus();
}

absl::Status CheckStopSize(const SamplingNames& names, const GenerationFields& parsed) {
  size_t num_bytes = 0;
  for (const std::string& stop : parsed.stop) num_bytes += stop.size();
  if (num_bytes <= kStopBytesMax) return absl::OkStatus();
  return FieldError(names.path + "stop",
                    absl::StrCat("must have at most ", kStopBytesMax, " bytes in all, got ", num_bytes));
}

absl::Status ParseStopTokenIds(const json::object& request, const SamplingNames& names, GenerationFields* parsed) {
  const std::string field = names.path + "stop_token_ids";
  const json::value* value = FindMember(request, "stop_token_ids");
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_array()) {
    return FieldError(field, absl::StrCat("must be an array of integers, got ", KindName(*value)));
  }
  const json::array& array = value->get_array();
  if (array.size() > kStopTokenIdsMax) {
    return FieldError(field, absl::StrCat("must have at most ", kStopTokenIdsMax, " ids, got ", array.size()));
  }
  for (size_t i = 0; i < array.size(); ++i) {
    const std::string path = absl::StrCat(field, "[", i, "]");
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
  ASSIGN_OR_RETURN(parsed->is_stream, ParseStreamField(request));
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

absl::StatusOr<bool> ParseStreamField(const json::object& request) {
  ASSIGN_OR_RETURN(std::optional<bool> is_stream, OptionalBool(request, "stream", "stream"));
  return is_stream.value_or(false);
}

absl::Status ParseSharingFields(const json::object& request, GenerationFields* parsed) {
  ASSIGN_OR_RETURN(const std::string salt, ParseRequestId(FindMember(request, "cache_salt"), "cache_salt"));
  ASSIGN_OR_RETURN(const std::string extra_key, ParseRequestId(FindMember(request, "extra_key"), "extra_key"));
  if (!salt.empty() && !extra_key.empty() && salt != extra_key) {
    return FieldError("extra_key", "is another name of cache_salt, and they differ");
  }
  parsed->cache_salt = salt.empty() ? extra_key : salt;
  ASSIGN_OR_RETURN(const std::optional<int64_t> priority,
                   OptionalInteger(request, "priority", "priority", std::numeric_limits<int32_t>::min(),
                                   std::numeric_limits<int32_t>::max()));
  parsed->priority = static_cast<int32_t>(priority.value_or(0));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ParseRequestId(const json::value* value, const std::string& param) {
  if (value == nullptr) return std::string();
  if (!value->is_string()) return FieldError(param, absl::StrCat("must be a string, got ", KindName(*value)));
  const json::string& text = value->get_string();
  const absl::string_view id(text.data(), text.size());
  if (id.empty() || id.size() > kIdBytesMax) {
    return FieldError(param, absl::StrCat("must have from 1 to ", kIdBytesMax, " bytes, got ", id.size()));
  }
  if (std::any_of(id.begin(), id.end(), absl::ascii_iscntrl)) {
    return FieldError(param, "must have no control characters");
  }
  return std::string(id);
}

SamplingNames SglangSamplingNames() {
  return {.path = "sampling_params.",
          .max_tokens = "max_new_tokens",
          .max_tokens_too = nullptr,
          .max_tokens_min = 0,
          .min_tokens = "min_new_tokens",
          .seed = "sampling_seed"};
}

absl::Status ParseSamplingFields(const json::object& object, const SamplingNames& names, GenerationFields* parsed) {
  parsed->sampling_path = names.path;
  RETURN_IF_ERROR(ParseSampling(object, names, parsed));
  RETURN_IF_ERROR(ParseLengths(object, names, parsed));
  RETURN_IF_ERROR(ParseStop(object, names, parsed));
  RETURN_IF_ERROR(CheckStopSize(names, *parsed));
  RETURN_IF_ERROR(ParseStopTokenIds(object, names, parsed));
  ASSIGN_OR_RETURN(std::optional<bool> ignores_eos, OptionalBool(object, "ignore_eos", names.path + "ignore_eos"));
  parsed->ignores_eos = ignores_eos.value_or(false);
  ASSIGN_OR_RETURN(parsed->form, ParseFormFields(object, names.path));
  return absl::OkStatus();
}

absl::StatusOr<GenerationFields> ParseGenerationFields(const json::object& request, const SamplingNames& names) {
  GenerationFields parsed;
  ASSIGN_OR_RETURN(std::optional<std::string> model, OptionalString(request, "model", "model"));
  if (!model.has_value()) return FieldError("model", "is required");
  parsed.model = *std::move(model);
  ASSIGN_OR_RETURN(parsed.id, ParseRequestId(FindMember(request, "rid"), "rid"));
  RETURN_IF_ERROR(ParseSharingFields(request, &parsed));
  RETURN_IF_ERROR(ParseSamplingFields(request, names, &parsed));
  RETURN_IF_ERROR(ParseStreaming(request, &parsed));
  return parsed;
}

}  // namespace tandem::router

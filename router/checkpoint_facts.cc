#include "router/checkpoint_facts.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "boost/json.hpp"

namespace tandem::router {
namespace {

namespace json = boost::json;

constexpr char kConfigFile[] = "config.json";
constexpr char kGenerationFile[] = "generation_config.json";
constexpr char kBosKey[] = "bos_token_id";
constexpr char kEosKey[] = "eos_token_id";

absl::StatusOr<json::object> ParseObject(absl::string_view text, const char* file) {
  json::error_code error;
  json::value root = json::parse(json::string_view(text.data(), text.size()), error);
  if (error) return absl::InvalidArgumentError(absl::StrCat(file, ": not JSON: ", error.message()));
  if (!root.is_object()) return absl::InvalidArgumentError(absl::StrCat(file, ": not a JSON object"));
  return std::move(root.get_object());
}

const json::value* Find(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

absl::StatusOr<int64_t> PositiveInteger(const json::object& object, const char* file, const char* key) {
  const json::value* value = Find(object, key);
  if (value == nullptr) return absl::InvalidArgumentError(absl::StrCat(file, ": ", key, " is missing"));
  if (!value->is_int64() || value->get_int64() <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": ", key, " is ", json::serialize(*value), ", must be a positive integer"));
  }
  return value->get_int64();
}

// A number within [min, max], or the default.
absl::StatusOr<double> NumberOr(const json::object& object, const char* key, double otherwise, double min, double max) {
  const json::value* value = Find(object, key);
  if (value == nullptr) return otherwise;
  if (!value->is_number() || value->to_number<double>() < min || value->to_number<double>() > max) {
    return absl::InvalidArgumentError(absl::StrCat(kGenerationFile, ": ", key, " is ", json::serialize(*value),
                                                   ", must be a number from ", min, " to ", max));
  }
  return value->to_number<double>();
}

// One id or a list of ids; absent leaves *ids as they are.
absl::Status ReadTokenIds(const json::object& object, const char* file, const char* key, int64_t vocab_size,
                          std::vector<uint32_t>* ids) {
  const json::value* value = Find(object, key);
  if (value == nullptr) return absl::OkStatus();
  const json::array list = value->is_array() ? value->get_array() : json::array({*value});
  ids->clear();
  for (const json::value& id : list) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": ", key, " is ", json::serialize(id), ", must be an id below vocab_size ", vocab_size));
    }
    ids->push_back(static_cast<uint32_t>(id.get_int64()));
  }
  return absl::OkStatus();
}

absl::Status ReadSampling(const json::object& object, SamplingDefaults* sampling) {
  ASSIGN_OR_RETURN(sampling->temperature, NumberOr(object, "temperature", sampling->temperature, 0, 100));
  ASSIGN_OR_RETURN(sampling->top_p, NumberOr(object, "top_p", sampling->top_p, 0, 1));
  ASSIGN_OR_RETURN(const double top_k,
                   NumberOr(object, "top_k", sampling->top_k, -1, std::numeric_limits<int32_t>::max()));
  sampling->top_k = top_k < 0 ? 0 : static_cast<int32_t>(top_k);
  const json::value* do_sample = Find(object, "do_sample");
  if (do_sample != nullptr && do_sample->is_bool() && !do_sample->get_bool()) sampling->temperature = 0;
  if (sampling->top_p == 0) {
    return absl::InvalidArgumentError(absl::StrCat(kGenerationFile, ": top_p is 0, must be above 0"));
  }
  return absl::OkStatus();
}

// What is only shown may have any shape: other than text counts as absent.
void ReadNames(const json::object& config, CheckpointFacts* facts) {
  const auto text = [](const json::value& value) { return std::string(value.get_string()); };
  const json::value* type = Find(config, "model_type");
  if (type != nullptr && type->is_string()) facts->model_type = text(*type);
  const json::value* architectures = Find(config, "architectures");
  if (architectures == nullptr || !architectures->is_array()) return;
  for (const json::value& name : architectures->get_array()) {
    if (name.is_string()) facts->architectures.push_back(text(name));
  }
}

absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path.string()));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

absl::StatusOr<CheckpointFacts> ParseCheckpointFacts(absl::string_view config_json,
                                                     absl::string_view generation_config_json) {
  CheckpointFacts facts;
  ASSIGN_OR_RETURN(const json::object config, ParseObject(config_json, kConfigFile));
  ASSIGN_OR_RETURN(facts.vocab_size, PositiveInteger(config, kConfigFile, "vocab_size"));
  ASSIGN_OR_RETURN(facts.context_length, PositiveInteger(config, kConfigFile, "max_position_embeddings"));
  ReadNames(config, &facts);
  std::vector<uint32_t> bos_token_ids;
  RETURN_IF_ERROR(ReadTokenIds(config, kConfigFile, kBosKey, facts.vocab_size, &bos_token_ids));
  if (!bos_token_ids.empty()) facts.bos_token_id = bos_token_ids.front();
  RETURN_IF_ERROR(ReadTokenIds(config, kConfigFile, kEosKey, facts.vocab_size, &facts.eos_token_ids));
  if (!generation_config_json.empty()) {
    ASSIGN_OR_RETURN(const json::object generation, ParseObject(generation_config_json, kGenerationFile));
    RETURN_IF_ERROR(ReadTokenIds(generation, kGenerationFile, kEosKey, facts.vocab_size, &facts.eos_token_ids));
    RETURN_IF_ERROR(ReadSampling(generation, &facts.sampling));
  }
  if (facts.eos_token_ids.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(kConfigFile, ": eos_token_id is missing"));
  }
  return facts;
}

absl::StatusOr<CheckpointFacts> LoadCheckpointFacts(const std::string& folder) {
  const std::filesystem::path root(folder);
  ASSIGN_OR_RETURN(const std::string config, ReadFile(root / kConfigFile));
  std::string generation_config;
  std::error_code ignored;  // a folder that cannot be searched failed above
  if (std::filesystem::exists(root / kGenerationFile, ignored)) {
    ASSIGN_OR_RETURN(generation_config, ReadFile(root / kGenerationFile));
  }
  return ParseCheckpointFacts(config, generation_config);
}

}  // namespace tandem::router

// The fields that every generation request has, whatever its prompt: sampling, length, stops, streaming.
//
// Types are strict, null counts as absent. What depends on the checkpoint (defaults, context, vocabulary) is checked by
// router/generation_plan.h. docs/api.md has every field. Tested through chat_request_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "boost/json.hpp"
#include "router/openai/answer_form.h"

namespace tandem::router {

struct GenerationFields {
  std::string model;
  std::string id;             // "rid", that the client chose for the request; "" = none
  std::string sampling_path;  // SamplingNames::path, for messages

  std::optional<double> temperature;                   // [0, 2]; below 1e-6 means argmax
  std::optional<double> top_p;                         // (0, 1]
  std::optional<int32_t> top_k;                        // 0 = off
  double min_p = 0;                                    // [0, 1]; 0 = off
  double repetition_penalty = 1;                       // (0, 2]
  double frequency_penalty = 0;                        // [-2, 2]
  double presence_penalty = 0;                         // [-2, 2]
  std::vector<std::pair<uint32_t, float>> logit_bias;  // by token id, each once
  std::optional<uint64_t> seed;
  int64_t num_choices = 1;
  bool wants_logprobs = false;  // each endpoint spells the two in its own way, and parses them
  int num_top_logprobs = 0;     // at most kTopLogprobsMax; 0 without logprobs
  // The first token of the prompt whose logprobs are wanted; only with logprobs.
  std::optional<int64_t> prompt_logprobs_begin;
  const char* prompt_logprobs_field = "echo";  // that asks for them

  std::optional<int64_t> max_new_tokens;  // 0 is allowed where SamplingNames say so
  int64_t min_new_tokens = 0;             // at most max_new_tokens
  std::vector<std::string> stop;          // at most kStopStringsMax, none empty
  std::vector<uint32_t> stop_token_ids;   // beside the checkpoint's own
  bool ignores_eos = false;
  std::optional<AnswerForm> form;  // json_schema, regex, ebnf; response_format is parsed by its endpoints

  std::string cache_salt;  // "cache_salt", or SGLang's "extra_key": KV is shared with requests of the same one only
  int32_t priority = 0;    // higher ones first, where workers go by it

  bool is_stream = false;
  bool includes_usage = false;  // of streams; whole answers always carry it
};

inline constexpr int kTopLogprobsMax = 20;
inline constexpr size_t kStopStringsMax = 16;
inline constexpr size_t kStopBytesMax = 16 * 1024;  // of all stop strings together
inline constexpr size_t kStopTokenIdsMax = 64;
inline constexpr size_t kLogitBiasMax = 1024;
inline constexpr int64_t kChoicesMax = 1024;  // no setting allows more

inline constexpr size_t kIdBytesMax = 256;

// How an API spells the fields of sampling and length that its forerunners spell otherwise.
struct SamplingNames {
  std::string path;  // where the object stands in the request, for messages: "" or "sampling_params."
  const char* max_tokens = "max_tokens";
  const char* max_tokens_too = "max_completion_tokens";  // a second spelling; nullptr = none
  int64_t max_tokens_min = 1;                            // 0: an answer without a token may be asked for
  const char* min_tokens = "min_tokens";
  const char* seed = "seed";
};

// As /generate spells them in its sampling_params.
SamplingNames SglangSamplingNames();

// Of an OpenAI request all but logprobs. INVALID_ARGUMENT naming the field.
absl::StatusOr<GenerationFields> ParseGenerationFields(const boost::json::object& request,
                                                       const SamplingNames& names = {});
// Those of them that say how tokens are drawn and where an answer ends.
absl::Status ParseSamplingFields(const boost::json::object& object, const SamplingNames& names,
                                 GenerationFields* parsed);
absl::StatusOr<bool> ParseStreamField(const boost::json::object& request);
// cache_salt (or extra_key) and priority.
absl::Status ParseSharingFields(const boost::json::object& request, GenerationFields* parsed);
// param: names the value in messages. "" where value is nullptr.
absl::StatusOr<std::string> ParseRequestId(const boost::json::value* value, const std::string& param);

}  // namespace tandem::router

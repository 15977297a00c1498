#include "router/openai/chat_request.h"

#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "boost/json.hpp"
#include "router/openai/api_error.h"
#include "router/openai/chat_messages.h"
#include "router/openai/json_fields.h"
#include "router/openai/unsupported_fields.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
constexpr double kGreedyTemperature = 1e-6;  // below it the logits' quotient overflows: argmax is what was meant

// Memory for the tree of one body; throws, as Boost.JSON wants it, where the body asks for more than its share.
class BoundedMemory final : public json::memory_resource {
 public:
  explicit BoundedMemory(size_t bytes_max) : bytes_left_(bytes_max) {}

 private:
  void* do_allocate(size_t size, size_t alignment) override {
    if (size > bytes_left_) throw std::bad_alloc();
    bytes_left_ -= size;
    return ::operator new(size, std::align_val_t(alignment));
  }
  void do_deallocate(void* memory, size_t size, size_t alignment) override {
    bytes_left_ += size;
    ::operator delete(memory, std::align_val_t(alignment));
  }
  bool do_is_equal(const json::memory_resource& other) const noexcept override { return this == &other; }

  size_t bytes_left_;
};

// memory outlives the result.
absl::StatusOr<json::value> ParseTree(absl::string_view body, json::memory_resource* memory) {
  json::parse_options options;
  options.max_depth = kJsonDepthMax;
  size_t consumed = 0;
  json::error_code error;
  try {
    json::stream_parser parser(memory, options);
    parser.reset(memory);
    consumed = parser.write_some(body.data(), body.size(), error);
    if (!error && consumed == body.size()) parser.finish(error);
    if (!error && consumed < body.size()) error = json::error::extra_data;
    if (!error) return parser.release();
  } catch (const std::exception&) {  // bad_alloc, or length_error of a string
    return WithDetails(absl::InvalidArgumentError("body: has too many values for its size"), "", "invalid_json");
  }
  const bool is_no_ascii = consumed < body.size() && static_cast<unsigned char>(body[consumed]) >= 0x80;
  return WithDetails(
      absl::InvalidArgumentError(absl::StrCat("body: invalid JSON near byte ", consumed, " of ", body.size(), ": ",
                                              error.message(), is_no_ascii ? " (perhaps not UTF-8)" : "")),
      "", "invalid_json");
}

// OpenAI's seed is an integer of any sign; its bits are the seed.
absl::StatusOr<std::optional<uint64_t>> ParseSeed(const json::object& request) {
  const json::value* value = FindMember(request, "seed");
  if (value != nullptr && value->is_uint64()) return value->get_uint64();
  ASSIGN_OR_RETURN(std::optional<int64_t> seed,
                   OptionalInteger(request, "seed", "seed", std::numeric_limits<int64_t>::min(), kInt64Max));
  if (!seed.has_value()) return std::nullopt;
  return static_cast<uint64_t>(*seed);
}

absl::Status ParseSampling(const json::object& request, ChatRequest* parsed) {
  ASSIGN_OR_RETURN(parsed->temperature, OptionalNumber(request, "temperature", "temperature", 0, 2));
  if (parsed->temperature.has_value() && *parsed->temperature < kGreedyTemperature) parsed->temperature = 0;
  ASSIGN_OR_RETURN(parsed->top_p, OptionalNumber(request, "top_p", "top_p", 0, 1));
  if (parsed->top_p == 0.0) return FieldError("top_p", "must be above 0, got 0");
  ASSIGN_OR_RETURN(std::optional<int64_t> top_k,
                   OptionalInteger(request, "top_k", "top_k", -1, std::numeric_limits<int32_t>::max()));
  if (top_k.has_value()) parsed->top_k = *top_k == -1 ? 0 : static_cast<int32_t>(*top_k);
  ASSIGN_OR_RETURN(parsed->seed, ParseSeed(request));
  return absl::OkStatus();
}

absl::Status ParseMaxTokens(const json::object& request, ChatRequest* parsed) {
  ASSIGN_OR_RETURN(std::optional<int64_t> older, OptionalInteger(request, "max_tokens", "max_tokens", 1, kInt64Max));
  ASSIGN_OR_RETURN(std::optional<int64_t> newer,
                   OptionalInteger(request, "max_completion_tokens", "max_completion_tokens", 1, kInt64Max));
  if (older.has_value() && newer.has_value() && *older != *newer) {
    return FieldError("max_tokens",
                      absl::StrCat("is ", *older, " but max_completion_tokens is ", *newer, "; send one of them"));
  }
  parsed->max_new_tokens = newer.has_value() ? newer : older;
  return absl::OkStatus();
}

absl::Status AppendStop(const json::value& value, const std::string& path, std::vector<std::string>* stop) {
  if (!value.is_string()) return FieldError(path, absl::StrCat("must be a string, got ", KindName(value)));
  if (value.get_string().empty()) return FieldError(path, "must not be empty");
  stop->emplace_back(value.get_string().data(), value.get_string().size());
  return absl::OkStatus();
}

absl::Status ParseStop(const json::object& request, ChatRequest* parsed) {
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

absl::Status CheckStopSize(const ChatRequest& parsed) {
  size_t num_bytes = 0;
  for (const std::string& stop : parsed.stop) num_bytes += stop.size();
  if (num_bytes <= kStopBytesMax) return absl::OkStatus();
  return FieldError("stop", absl::StrCat("must have at most ", kStopBytesMax, " bytes in all, got ", num_bytes));
}

absl::Status ParseStopTokenIds(const json::object& request, ChatRequest* parsed) {
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

// chat_template_kwargs.thinking and .enable_thinking are two spellings of one switch.
absl::StatusOr<std::optional<bool>> ThinkingOfTemplateKwargs(const json::object& request) {
  ASSIGN_OR_RETURN(const json::object* kwargs, OptionalObject(request, "chat_template_kwargs", "chat_template_kwargs"));
  if (kwargs == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(std::optional<bool> thinking, OptionalBool(*kwargs, "thinking", "chat_template_kwargs.thinking"));
  ASSIGN_OR_RETURN(std::optional<bool> enable_thinking,
                   OptionalBool(*kwargs, "enable_thinking", "chat_template_kwargs.enable_thinking"));
  if (thinking.has_value() && enable_thinking.has_value() && *thinking != *enable_thinking) {
    return FieldError("chat_template_kwargs", "thinking and enable_thinking contradict each other");
  }
  return thinking.has_value() ? thinking : enable_thinking;
}

// {"thinking": {"type": "enabled" | "disabled"}}
absl::StatusOr<std::optional<bool>> ThinkingOfThinkingObject(const json::object& request) {
  ASSIGN_OR_RETURN(const json::object* thinking, OptionalObject(request, "thinking", "thinking"));
  if (thinking == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(std::optional<std::string> type, OptionalString(*thinking, "type", "thinking.type"));
  if (type == "enabled") return true;
  if (type == "disabled") return false;
  return FieldError("thinking.type", "must be \"enabled\" or \"disabled\"");
}

// The format has no degrees of thinking: any effort but "none" and "minimal" switches it on.
absl::StatusOr<std::optional<bool>> ThinkingOfReasoningEffort(const json::object& request) {
  ASSIGN_OR_RETURN(std::optional<std::string> effort, OptionalString(request, "reasoning_effort", "reasoning_effort"));
  if (!effort.has_value()) return std::nullopt;
  if (*effort == "none" || *effort == "minimal") return false;
  for (const char* level : {"low", "medium", "high", "xhigh", "max"}) {
    if (*effort == level) return true;
  }
  return FieldError("reasoning_effort",
                    absl::StrCat("must be none, minimal, low, medium, high, xhigh or max, got ", Quoted(*effort)));
}

// The more explicit spelling wins; all are checked.
absl::StatusOr<bool> ParseThinking(const json::object& request) {
  ASSIGN_OR_RETURN(std::optional<bool> by_kwargs, ThinkingOfTemplateKwargs(request));
  ASSIGN_OR_RETURN(std::optional<bool> by_object, ThinkingOfThinkingObject(request));
  ASSIGN_OR_RETURN(std::optional<bool> by_effort, ThinkingOfReasoningEffort(request));
  if (by_kwargs.has_value()) return *by_kwargs;
  if (by_object.has_value()) return *by_object;
  return by_effort.value_or(false);
}

absl::Status ParseStreaming(const json::object& request, ChatRequest* parsed) {
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

absl::StatusOr<ChatRequest> ParseChatRequest(absl::string_view body) {
  BoundedMemory memory(kJsonTreeBytesMin + kJsonTreeBytesPerByte * body.size());
  ASSIGN_OR_RETURN(const json::value root, ParseTree(body, &memory));
  if (!root.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("body: must be a JSON object, got ", KindName(root)));
  }
  const json::object& request = root.get_object();
  ChatRequest parsed;
  ASSIGN_OR_RETURN(std::optional<std::string> model, OptionalString(request, "model", "model"));
  if (!model.has_value()) return FieldError("model", "is required");
  parsed.model = *std::move(model);
  ASSIGN_OR_RETURN(parsed.messages, ParseChatMessages(request));
  RETURN_IF_ERROR(RefuseUnsupportedFields(request));
  RETURN_IF_ERROR(ParseSampling(request, &parsed));
  RETURN_IF_ERROR(ParseMaxTokens(request, &parsed));
  RETURN_IF_ERROR(ParseStop(request, &parsed));
  RETURN_IF_ERROR(CheckStopSize(parsed));
  RETURN_IF_ERROR(ParseStopTokenIds(request, &parsed));
  ASSIGN_OR_RETURN(std::optional<bool> ignores_eos, OptionalBool(request, "ignore_eos", "ignore_eos"));
  parsed.ignores_eos = ignores_eos.value_or(false);
  ASSIGN_OR_RETURN(parsed.is_thinking, ParseThinking(request));
  RETURN_IF_ERROR(ParseStreaming(request, &parsed));
  return parsed;
}

}  // namespace tandem::router

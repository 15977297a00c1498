// The body of POST /v1/chat/completions, parsed and checked as far as the text alone allows.
//
// Types are strict, null counts as absent, unknown fields are tolerated, and a field that would change the answer but
// is not implemented is refused (unsupported_fields.h). What depends on the checkpoint (defaults, context, vocabulary)
// is checked by router/generation_plan.h. Tested by chat_request_test.cc and chat_request_fuzz_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/chat/chat_message.h"

namespace tandem::router {

struct ChatRequest {
  std::string model;
  std::vector<ChatMessage> messages;  // at least one
  bool is_thinking = false;

  std::optional<double> temperature;  // [0, 2]; below 1e-6 means argmax
  std::optional<double> top_p;        // (0, 1]
  std::optional<int32_t> top_k;       // 0 = off
  std::optional<uint64_t> seed;
  std::optional<int64_t> max_new_tokens;  // at least 1; absent = to the context's end
  std::vector<std::string> stop;          // at most kStopStringsMax, none empty
  std::vector<uint32_t> stop_token_ids;   // beside the checkpoint's own
  bool ignores_eos = false;

  bool is_stream = false;
  bool includes_usage = false;  // of streams; whole answers always carry it
};

inline constexpr size_t kStopStringsMax = 16;
inline constexpr size_t kStopBytesMax = 16 * 1024;  // of all stop strings together
inline constexpr size_t kStopTokenIdsMax = 64;
inline constexpr size_t kMessagesMax = 65536;
inline constexpr size_t kJsonDepthMax = 64;
// A body of nothing but small values would take some 20 times its size as a tree; text takes about twice.
inline constexpr size_t kJsonTreeBytesMin = size_t{32} << 20;
inline constexpr size_t kJsonTreeBytesPerByte = 4;

// INVALID_ARGUMENT as an OpenAI error that names the field: malformed JSON (with the byte offset), invalid UTF-8, lone
// surrogates, nesting beyond kJsonDepthMax, too many values, wrong types, bad ranges, unsupported fields.
absl::StatusOr<ChatRequest> ParseChatRequest(absl::string_view body);

}  // namespace tandem::router

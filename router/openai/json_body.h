// A request's body as a JSON object, within bounds that hold for any body.
// Tested through chat_request_test.cc and chat_request_fuzz_test.cc.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "boost/json.hpp"

namespace tandem::router {

inline constexpr size_t kJsonDepthMax = 64;
// A body of nothing but small values would take some 20 times its size as a tree; text takes about twice.
inline constexpr size_t kJsonTreeBytesMin = size_t{32} << 20;
inline constexpr size_t kJsonTreeBytesPerByte = 4;

// Parses the body and hands it to read, whose status is returned; the tree is gone afterwards. INVALID_ARGUMENT as an
// OpenAI error: malformed JSON (with the byte offset), invalid UTF-8, lone surrogates, nesting beyond kJsonDepthMax,
// too many values, no object.
absl::Status ReadJsonBody(absl::string_view body, const std::function<absl::Status(const boost::json::object&)>& read);

}  // namespace tandem::router

// Writes JSON text by appending: the token path re-serialises no tree.
//
// Input is valid UTF-8 (the detokeniser and the request parser see to it); non-ASCII is kept as it is.
// Tested by json_text_test.cc.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace tandem::router {

// Appends text as it stands inside a JSON string, without the quotes. O(n), no allocation beyond out's growth.
void AppendJsonEscaped(std::string& out, absl::string_view text);
// The same with the quotes.
void AppendJsonString(std::string& out, absl::string_view text);
std::string JsonString(absl::string_view text);
// The shortest digits that read back as the same float. Finite numbers only: JSON has no others.
void AppendJsonNumber(std::string& out, float number);

}  // namespace tandem::router

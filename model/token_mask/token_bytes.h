// The bytes that each token of a vocabulary stands for, as the checkpoint's tokenizer.json says.
//
// All that the engine knows of text: what constraints need, and no more. Encoding and decoding are the router's
// (router/tokenizer/); both read one file, and tests/constraints/token_bytes_test.cc holds them to
// the same bytes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::model {

// [vocab_size]. Empty for added tokens, which are marks and stand for themselves, and for ids without an entry.
// INVALID_ARGUMENT names the part of the file that is malformed.
absl::StatusOr<std::vector<std::string>> ParseTokenBytes(absl::string_view tokenizer_json, int vocab_size);

// Reads `model_path`/tokenizer.json. NOT_FOUND where there is none.
absl::StatusOr<std::vector<std::string>> LoadTokenBytes(const std::string& model_path, int vocab_size);

}  // namespace tandem::model

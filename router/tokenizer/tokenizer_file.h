// Reads tokenizer.json into plain tables, and refuses what it would have to read differently than it is meant.
//
// Accepted: a BPE model over the byte alphabet, merges as "left right" or ["left", "right"], splits of behaviour
// "Isolated" followed by a byte-level step, an identity normalizer, added tokens without stripping or word rules.
// Tested by tokenizer_file_test.cc.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/tokenizer/added_token_finder.h"
#include "router/tokenizer/byte_pair_merger.h"
#include "router/tokenizer/pre_tokenizer.h"
#include "router/tokenizer/token_id.h"

namespace tandem::router {

struct TokenizerFile {
  std::vector<std::string> token_bytes;  // [num_ids], empty where the id has no entry
  std::array<TokenId, 256> byte_tokens;  // of each single byte
  std::vector<MergeRule> merges;         // by rank
  std::vector<AddedToken> added_tokens;
  std::vector<SplitStep> split_steps;
};

// INVALID_ARGUMENT names the field.
absl::StatusOr<TokenizerFile> ParseTokenizerFile(absl::string_view json);

}  // namespace tandem::router

// The few facts of a checkpoint that the router needs, read from its config.json and generation_config.json.
//
// The model itself is the workers' business: nothing of layers, shapes or weights is read here.
// Tested by checkpoint_facts_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::router {

// How a request samples where it does not say.
struct SamplingDefaults {
  double temperature = 1;
  double top_p = 1;
  int32_t top_k = 0;  // 0 = off
};

struct CheckpointFacts {
  int64_t vocab_size = 0;
  int64_t context_length = 0;            // max_position_embeddings: prompt and answer together, tokens
  std::optional<uint32_t> bos_token_id;  // begins a text; config.json's
  std::vector<uint32_t> eos_token_ids;   // at least one; those of generation_config.json before those of config.json
  SamplingDefaults sampling;
  std::string model_type;                  // "" where the file has none; to be shown, nothing more
  std::vector<std::string> architectures;  // the same
};

// generation_config_json may be empty: then the defaults are neutral. Unknown keys are ignored. INVALID_ARGUMENT names
// the file and the key.
absl::StatusOr<CheckpointFacts> ParseCheckpointFacts(absl::string_view config_json,
                                                     absl::string_view generation_config_json);
// Reads both files of a checkpoint folder; generation_config.json may be absent. NOT_FOUND names the missing file.
absl::StatusOr<CheckpointFacts> LoadCheckpointFacts(const std::string& folder);

}  // namespace tandem::router

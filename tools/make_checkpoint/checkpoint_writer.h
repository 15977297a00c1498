// Writes a whole checkpoint folder of random weights in Hugging Face's layout: config.json, generation_config.json,
// tokenizer.json, tokenizer_config.json, model.safetensors.index.json and its shards.
//
// The same (config, seed, shards) gives the same bytes on every machine; seed and config alone give the same tensors.
// The folder appears whole or not at all: it is written beside its place and renamed.
// Tested by checkpoint_writer_test.cc.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace tandem::make_checkpoint {

struct CheckpointOptions {
  std::string config_name;  // "v32-tiny", "v32-tiny-calm" or "v32-micro"
  uint64_t seed = 0;
  std::string folder;  // must not exist, or be an empty folder
  int num_shards = 2;  // 1 to 999
};
// INVALID_ARGUMENT for an unknown config or a bad number of shards, ALREADY_EXISTS where the folder holds something,
// UNAVAILABLE where the disk does not take it (nothing is left behind then).
absl::Status WriteCheckpoint(const CheckpointOptions& options);

inline absl::Status WriteCheckpoint(const std::string& config_name, uint64_t seed, const std::string& folder) {
  return WriteCheckpoint(CheckpointOptions{.config_name = config_name, .seed = seed, .folder = folder});
}

}  // namespace tandem::make_checkpoint

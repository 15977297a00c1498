// For tests: v32-micro with its tensors changed, as a checkpoint folder of one file without an index.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint.h"
#include "model/safetensors.h"

namespace tandem::model {

// A tensor whose bytes can be changed; tensor.bytes is set from `bytes` when the file is written.
struct OwnTensor {
  Tensor tensor;
  std::vector<uint8_t> bytes;
};
using TensorEdit = std::function<void(std::vector<OwnTensor>&)>;

// v32-micro (seed 1) after the edit, and after these replacements in the text of its config.json, each of which must
// hit. The folder is removed again: the mapping keeps the bytes.
std::shared_ptr<const Checkpoint> MakeEditedCheckpoint(
    const TensorEdit& edit, const std::vector<std::pair<std::string, std::string>>& config_replacements = {});

// Parts of edits. The tensor must be there.
OwnTensor& At(std::vector<OwnTensor>& tensors, const std::string& name);
void Erase(std::vector<OwnTensor>& tensors, const std::string& name);
// Stores an FP8 linear as bf16(weight * scale) without scales. name: with ".weight".
void StoreAsBf16(std::vector<OwnTensor>& tensors, const std::string& name);

}  // namespace tandem::model

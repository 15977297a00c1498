// Weights made from a seed instead of a checkpoint, in the backend's memory: for benchmarks and trials at real
// dimensions without 690 GB of files.
//
// Every tensor is cut from one block of normally distributed values at a place of its own, so that making them costs
// little more than writing them. Spreads are those of a trained model's (embedding 1, linears in_dim^-0.5, so that
// every product is of the size that it is there); text is nonsense. Equal on every backend for one configuration and
// seed. Tested by dummy_weights_test.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace tandem::model {

// FP8 linears with block scales where config.has_fp8_weights, else BF16. RESOURCE_EXHAUSTED where there is no room.
absl::StatusOr<std::unique_ptr<const ModelWeights>> MakeDummyWeights(kernels::Backend& backend,
                                                                     const ModelConfig& config, bool with_mtp,
                                                                     uint64_t seed);

// Stands in for Checkpoint::ModelHash: equal iff configuration and seed are.
std::string DummyModelHash(const ModelConfig& config, uint64_t seed);

}  // namespace tandem::model

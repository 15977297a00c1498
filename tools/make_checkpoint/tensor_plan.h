// Every tensor of a checkpoint in the order of its files: name, shape, and how its values are drawn.
// Tested by checkpoint_writer_test.cc (counts and bytes of the specification).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/make_checkpoint/named_config.h"

namespace tandem::make_checkpoint {

enum class Init {
  kFp8Linear,   // N(0, 1/in), E4M3 with one power-of-two scale per 128 x 128 block: adds NAME_scale_inv
  kBf16Normal,  // gain * N(0, 1/in), BF16
  kBf16Unit,    // N(0, 1), BF16
  kBf16Norm,    // 1 + 0.1 N, BF16
  kF32Norm,     // 1 + 0.1 N, F32
  kF32Bias,     // 0.1 N, F32
  kF32Uniform,  // U(-0.2, 0.2), F32
};

struct PlannedTensor {
  std::string name;
  Init init;
  std::vector<int64_t> shape;  // the last dimension is `in`
  double gain = 1.0;
  std::string copy_of;  // where set: the same bytes as that tensor, which comes earlier
};

std::vector<PlannedTensor> PlanTensors(const NamedConfig& config);

}  // namespace tandem::make_checkpoint

// Random numbers whose bits depend on (seed, tensor name, index) alone: the same on every machine, in any order of
// generation. Philox for bits; Marsaglia's polar method with our own logarithm for the normal distribution.
// Tested by random_values_test.cc.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "model/philox.h"

namespace tandem::make_checkpoint {

class RandomValues final {
 public:
  RandomValues(uint64_t seed, std::string_view stream_name);
  // Uniform in (-1, 1), never 0.
  double NextSigned();
  // Standard normal.
  double NextNormal();

 private:
  const uint64_t seed_;
  model::PhiloxCounter counter_;  // words 0 and 1 the stream, 2 and 3 the block
  std::array<uint32_t, 4> block_{};
  size_t num_used_ = 4;
  double spare_normal_ = 0;
  bool has_spare_ = false;
};

}  // namespace tandem::make_checkpoint

// Numbers that a seed decides: the same on every machine and in every build, which the standard library's
// distributions do not promise. Tested by draws_test.cc.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace tandem::bench_serving {

class Draws final {
 public:
  explicit Draws(uint64_t seed) : bits_(seed) {}

  // Uniform in [min, max].
  uint64_t Between(uint64_t min, uint64_t max);
  // Exponential with that mean: the time to the next arrival of a Poisson process.
  double Exponential(double mean);

  template <typename Value>
  void Shuffle(std::vector<Value>* values) {
    for (size_t i = values->size(); i > 1; --i) std::swap((*values)[i - 1], (*values)[Between(0, i - 1)]);
  }

 private:
  std::mt19937_64 bits_;  // the engine itself is specified to the bit
};

}  // namespace tandem::bench_serving

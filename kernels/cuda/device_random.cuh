// Random values from a counter, for benchmarks and limits: value i of a seed is the same on every device.
#pragma once

#include <cstdint>

namespace tandem::kernels::cuda {

// SplitMix64's finaliser.
__device__ inline uint64_t RandomBits(uint64_t seed, uint64_t counter) {
  uint64_t z = seed * 0xd1342543de82ef95ull + counter * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Box and Muller.
__device__ inline float RandomNormal(uint64_t seed, uint64_t counter) {
  const uint64_t bits = RandomBits(seed, counter);
  const float radius = sqrtf(-2.0f * __logf((static_cast<float>(bits >> 40) + 1.0f) * 0x1p-24f));
  return radius * __cosf(static_cast<float>(bits & 0xffffffu) * (6.2831853f * 0x1p-24f));
}

}  // namespace tandem::kernels::cuda

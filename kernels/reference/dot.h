// The plain definition of a dot product of BF16 values: docs/kernels/numerics.md in scalars.
//
// Lane l of 16 adds the pairs p with p mod 16 = l, ascending; of a pair (elements 2p and 2p + 1) the odd element's
// product first, then the even one's, each by a fused multiply-add. The lanes are added as a tree. An axis that is no
// multiple of 32 goes on with zeros. Callers flush subnormals.
#pragma once

#include <cmath>
#include <cstdint>

namespace tandem::kernels::reference {

// lanes += the products of x(k) and w(k), floats that BF16 can hold.
template <typename X, typename W>
void AddPairs(int64_t count, const X& x, const W& w, float (&lanes)[16]) {
  for (int64_t k = 0; k < (count + 31) / 32 * 32; k += 2) {
    float& lane = lanes[k / 2 % 16];
    for (int64_t element : {k + 1, k}) {
      const bool is_padding = element >= count;
      lane = std::fma(is_padding ? 0.0f : x(element), is_padding ? 0.0f : w(element), lane);
    }
  }
}

inline float SumOfLanes(float (&lanes)[16]) {
  for (int half = 8; half >= 1; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

template <typename X, typename W>
float DotInLanes(int64_t count, const X& x, const W& w) {
  float lanes[16] = {};
  AddPairs(count, x, w, lanes);
  return SumOfLanes(lanes);
}

}  // namespace tandem::kernels::reference

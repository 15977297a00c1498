// The k largest logits at one level: counts how many reach a bound, and halves the range of bounds until the k-th
// largest is known; then a last pass writes positions. A pass reads the row at the speed of the cache, and the range is
// halved over what is left after the first passes, so that few are needed. Comparisons only: exact.
#include "kernels/cpu/level.h"
#include "kernels/lanes.h"

namespace tandem::kernels::cpu {
namespace TANDEM_LEVEL {
namespace {

// Once no more than this many logits are in question they are copied and searched apart.
constexpr int kCandidatesMax = 4096;

// Floats and the order of their keys: a larger key is a larger float, -0 and +0 the same bound.
TANDEM_LANES_INLINE uint32_t KeyOf(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
TANDEM_LANES_INLINE float OfKey(uint32_t key) {
  return __builtin_bit_cast(float, (key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

constexpr int kUnroll = 4;

int64_t CountAtLeastBound(const float* values, int64_t count, float bound) {
  LaneCounts counts[kUnroll] = {};
  int64_t s = 0;
  for (; s + kUnroll * kLanes <= count; s += kUnroll * kLanes) {
    for (int u = 0; u < kUnroll; ++u) CountAtLeast(LoadLanes(values + s + u * kLanes), bound, counts[u]);
  }
  int64_t sum = 0;
  for (const LaneCounts& part : counts) sum += SumCounts(part);
  for (; s < count; ++s) sum += values[s] >= bound;
  return sum;
}

// Calls found(s) for every value of at least `bound`, ascending; ends when it says false.
template <typename Found>
TANDEM_LANES_INLINE void ForEachAtLeast(const float* values, int64_t count, float bound, const Found& found) {
  int64_t s = 0;
  for (; s + kLanes <= count; s += kLanes) {
    for (uint32_t mask = MaskAtLeast(LoadLanes(values + s), bound); mask != 0; mask &= mask - 1) {
      if (!found(s + __builtin_ctz(mask))) return;
    }
  }
  for (; s < count; ++s) {
    if (values[s] >= bound && !found(s)) return;
  }
}

// The largest key that at least k values reach, between low (which at least k reach) and high (which fewer do).
uint32_t HalveToTheEnd(const float* values, int64_t count, int64_t k, uint32_t low, uint32_t high) {
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    (CountAtLeastBound(values, count, OfKey(middle)) >= k ? low : high) = middle;
  }
  return low;
}

int32_t CountNans(const float* values, int64_t count) {
  // What is not NaN is at least -inf.
  return static_cast<int32_t>(count - CountAtLeastBound(values, count, -__builtin_inff()));
}

uint32_t FindThreshold(const float* logits, int64_t count, int64_t k) {
  // low: at least k values reach it, num_low in all; high: fewer than k do, num_high.
  uint32_t low = KeyOf(-__builtin_inff()), high = KeyOf(__builtin_inff()) + 1;
  int64_t num_low = count, num_high = 0;
  // Zeros come in crowds (relu), so the first two bounds are just above them and zero itself.
  const uint32_t zero = KeyOf(0.0f);
  for (int step = 0; num_low - num_high > kCandidatesMax && high - low > 1; ++step) {
    const uint32_t middle = step == 0 ? zero + 1 : (step == 1 && high == zero + 1) ? zero : low + (high - low) / 2;
    const int64_t reached = CountAtLeastBound(logits, count, OfKey(middle));
    if (reached >= k) {
      low = middle;
      num_low = reached;
    } else {
      high = middle;
      num_high = reached;
    }
  }
  if (high - low <= 1) return low;
  float candidates[kCandidatesMax];
  int64_t num_candidates = 0;
  const float upper = OfKey(high);
  ForEachAtLeast(logits, count, OfKey(low), [&](int64_t s) {
    if (!(logits[s] >= upper)) candidates[num_candidates++] = logits[s];
    return true;
  });
  return HalveToTheEnd(candidates, num_candidates, k - num_high, low, high);
}

}  // namespace

int32_t TopK(const float* logits, int64_t count, int64_t k, int32_t* positions) {
  const int32_t num_nans = CountNans(logits, count);
  constexpr float kMinusInfinity = -__builtin_inff();
  const uint32_t key = count - num_nans < k ? KeyOf(kMinusInfinity) : FindThreshold(logits, count, k);
  int64_t spare = k - CountAtLeastBound(logits, count, OfKey(key + 1)), found = 0;  // of those at the threshold
  if (key == KeyOf(kMinusInfinity)) {
    for (int64_t s = 0; s < count && found < k; ++s) {  // NaN counts as -inf
      if (logits[s] > kMinusInfinity || spare-- > 0) positions[found++] = static_cast<int32_t>(s);
    }
    return num_nans;
  }
  const float threshold = OfKey(key);
  ForEachAtLeast(logits, count, threshold, [&](int64_t s) {
    if (logits[s] > threshold || spare-- > 0) positions[found++] = static_cast<int32_t>(s);
    return found < k;
  });
  return num_nans;
}

}  // namespace TANDEM_LEVEL
}  // namespace tandem::kernels::cpu

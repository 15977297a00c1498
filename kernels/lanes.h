// Sixteen virtual FP32 lanes: the unit in which every sum over a contiguous axis is defined (docs/kernels/numerics.md).
//
// Lane l of a sum of floats adds the elements k with k mod 16 == l in ascending order; of a dot product of BF16 values
// it adds pairs (AddDotOfPairs). SumLanes then adds the lanes as a fixed binary tree: l + (l + 8), then + 4, + 2, + 1.
// Lanes holds one 512-bit, two 256-bit or four 128-bit registers, as the compiler's flags allow; each lane's operations
// and their order are the same, so the bits are as well.
//
// Everything here is always_inline and in a namespace of its width: this header is compiled at several instruction set
// levels, and no copy made for a newer level may be what the linker keeps for all.
// Tested by lanes_test.cc, and level against level by cpu/levels_test.cc.
#pragma once

#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif
#if defined(__AVX2__) && !defined(__FMA__)
#error "a level with AVX2 has FMA as well"
#endif

namespace tandem::kernels {

#define TANDEM_LANES_INLINE inline __attribute__((always_inline))

inline constexpr int kLanes = 16;

#if defined(__AVX512BF16__)
inline namespace lanes512bf16 {
inline constexpr int kNativeLanes = 16;
#elif defined(__AVX512F__)
inline namespace lanes512 {
inline constexpr int kNativeLanes = 16;
#elif defined(__AVX2__)
inline namespace lanes256 {
inline constexpr int kNativeLanes = 8;
#else
inline namespace lanes128 {
inline constexpr int kNativeLanes = 4;
#endif
inline constexpr int kNativeParts = kLanes / kNativeLanes;

// One register.
typedef float NativeFloat __attribute__((vector_size(kNativeLanes * 4)));
typedef uint32_t NativeUint __attribute__((vector_size(kNativeLanes * 4)));

struct Lanes {
  NativeFloat part[kNativeParts];

  TANDEM_LANES_INLINE float operator[](int lane) const { return part[lane / kNativeLanes][lane % kNativeLanes]; }
};

// result.part[p] = function(p): the loop that every operation on Lanes is.
template <typename Function>
TANDEM_LANES_INLINE Lanes MakeLanes(const Function& function) {
  Lanes lanes;
#pragma GCC unroll 4
  for (int p = 0; p < kNativeParts; ++p) lanes.part[p] = function(p);
  return lanes;
}

TANDEM_LANES_INLINE Lanes BroadcastLanes(float value) {
  return MakeLanes([&](int) { return NativeFloat{} + value; });
}
TANDEM_LANES_INLINE Lanes operator+(const Lanes& a, const Lanes& b) {
  return MakeLanes([&](int p) { return a.part[p] + b.part[p]; });
}
TANDEM_LANES_INLINE Lanes operator-(const Lanes& a, const Lanes& b) {
  return MakeLanes([&](int p) { return a.part[p] - b.part[p]; });
}
TANDEM_LANES_INLINE Lanes operator*(const Lanes& a, const Lanes& b) {
  return MakeLanes([&](int p) { return a.part[p] * b.part[p]; });
}
TANDEM_LANES_INLINE Lanes operator/(const Lanes& a, const Lanes& b) {
  return MakeLanes([&](int p) { return a.part[p] / b.part[p]; });
}
TANDEM_LANES_INLINE void operator+=(Lanes& a, const Lanes& b) { a = a + b; }
// The larger of each lane; b's where either is NaN.
TANDEM_LANES_INLINE Lanes MaxLanes(const Lanes& a, const Lanes& b) {
  return MakeLanes([&](int p) { return a.part[p] > b.part[p] ? a.part[p] : b.part[p]; });
}

TANDEM_LANES_INLINE Lanes LoadLanes(const float* source) {
  typedef float Unaligned __attribute__((vector_size(kNativeLanes * 4), aligned(4), may_alias));
  return MakeLanes(
      [&](int p) -> NativeFloat { return *reinterpret_cast<const Unaligned*>(source + p * kNativeLanes); });
}
TANDEM_LANES_INLINE void StoreLanes(float* target, const Lanes& lanes) {
  typedef float Unaligned __attribute__((vector_size(kNativeLanes * 4), aligned(4), may_alias));
#pragma GCC unroll 4
  for (int p = 0; p < kNativeParts; ++p) *reinterpret_cast<Unaligned*>(target + p * kNativeLanes) = lanes.part[p];
}

// Sixteen consecutive bytes or halves, widened to one register of each part.
struct UintParts {
  NativeUint part[kNativeParts];
};
#if defined(__AVX512F__)
TANDEM_LANES_INLINE UintParts LoadBytes(const void* source) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(source));
  return {{__builtin_bit_cast(NativeUint, _mm512_maskz_cvtepu8_epi32(0xffff, bytes))}};
}
TANDEM_LANES_INLINE UintParts LoadHalves(const void* source) {
  const __m256i halves = _mm256_loadu_si256(static_cast<const __m256i*>(source));
  return {{__builtin_bit_cast(NativeUint, _mm512_maskz_cvtepu16_epi32(0xffff, halves))}};
}
#elif defined(__AVX2__)
TANDEM_LANES_INLINE UintParts LoadBytes(const void* source) {
  const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(source));
  return {{__builtin_bit_cast(NativeUint, _mm256_cvtepu8_epi32(bytes)),
           __builtin_bit_cast(NativeUint, _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes)))}};
}
TANDEM_LANES_INLINE UintParts LoadHalves(const void* source) {
  const auto* halves = static_cast<const __m128i*>(source);
  return {{__builtin_bit_cast(NativeUint, _mm256_cvtepu16_epi32(_mm_loadu_si128(halves))),
           __builtin_bit_cast(NativeUint, _mm256_cvtepu16_epi32(_mm_loadu_si128(halves + 1)))}};
}
#else
// Interleaving with zeros, for want of a widening load. Little endian.
typedef uint16_t NativeHalves __attribute__((vector_size(16)));
TANDEM_LANES_INLINE void WidenHalves(const NativeHalves& halves, NativeUint* parts) {
  const NativeHalves zero = {};
  parts[0] = __builtin_bit_cast(NativeUint, __builtin_shufflevector(halves, zero, 0, 8, 1, 9, 2, 10, 3, 11));
  parts[1] = __builtin_bit_cast(NativeUint, __builtin_shufflevector(halves, zero, 4, 12, 5, 13, 6, 14, 7, 15));
}
TANDEM_LANES_INLINE UintParts LoadBytes(const void* source) {
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  typedef uint8_t Unaligned __attribute__((vector_size(16), aligned(1), may_alias));
  const Bytes bytes = *static_cast<const Unaligned*>(source);
  const Bytes zero = {};
  const Bytes low = __builtin_shufflevector(bytes, zero, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const Bytes high = __builtin_shufflevector(bytes, zero, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
  UintParts parts;
  WidenHalves(__builtin_bit_cast(NativeHalves, low), parts.part);
  WidenHalves(__builtin_bit_cast(NativeHalves, high), parts.part + 2);
  return parts;
}
TANDEM_LANES_INLINE UintParts LoadHalves(const void* source) {
  typedef uint16_t Unaligned __attribute__((vector_size(16), aligned(2), may_alias));
  const NativeHalves low = static_cast<const Unaligned*>(source)[0];
  const NativeHalves high = static_cast<const Unaligned*>(source)[1];
  UintParts parts;
  WidenHalves(low, parts.part);
  WidenHalves(high, parts.part + 2);
  return parts;
}
#endif

// Sixteen BF16 values.
TANDEM_LANES_INLINE Lanes LoadBf16Lanes(const void* source) {
  const UintParts halves = LoadHalves(source);
  return MakeLanes([&](int p) { return __builtin_bit_cast(NativeFloat, halves.part[p] << 16); });
}

// Each lane rounded to BF16 and back, ties to even, NaN to a quiet NaN: RoundToBf16 on every lane.
TANDEM_LANES_INLINE Lanes RoundLanesToBf16(const Lanes& lanes) {
  return MakeLanes([&](int p) {
    const NativeUint bits = __builtin_bit_cast(NativeUint, lanes.part[p]);
    const NativeUint rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
    const NativeUint quiet_nan = (bits & 0xffff0000u) | 0x400000u;
    return __builtin_bit_cast(NativeFloat, (bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  });
}
TANDEM_LANES_INLINE void StoreBf16Lanes(void* target, const Lanes& lanes) {
#if defined(__AVX512F__)
  const __m512i rounded = __builtin_bit_cast(__m512i, RoundLanesToBf16(lanes).part[0]);
  _mm256_storeu_si256(static_cast<__m256i*>(target), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
#else
  typedef uint16_t UnalignedHalf __attribute__((aligned(2), may_alias));
  float rounded[kLanes];
  StoreLanes(rounded, RoundLanesToBf16(lanes));
  auto* halves = static_cast<UnalignedHalf*>(target);
  for (int l = 0; l < kLanes; ++l) halves[l] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, rounded[l]) >> 16);
#endif
}

// Sixteen E4M3 codes. A subnormal m * 2^-9 is made as 2^-6 * (1 + m / 8) - 2^-6: no subnormal float is ever touched.
TANDEM_LANES_INLINE Lanes LoadE4m3Lanes(const void* source) {
  const UintParts codes = LoadBytes(source);
  return MakeLanes([&](int p) {
    const NativeUint magnitude = codes.part[p] & 0x7fu;
    const NativeUint sign = (codes.part[p] & 0x80u) << 24;
    const NativeUint subnormal = __builtin_bit_cast(NativeUint, magnitude < 8u);  // all ones where true
    const NativeUint nan = __builtin_bit_cast(NativeUint, magnitude == 0x7fu) & 0x7fc00000u;
    const NativeUint shifted = (magnitude << 20) + (120u << 23) + (subnormal & (1u << 23));
    const NativeFloat value =
        __builtin_bit_cast(NativeFloat, shifted) - __builtin_bit_cast(NativeFloat, subnormal & 0x3c800000u);
    return __builtin_bit_cast(NativeFloat, __builtin_bit_cast(NativeUint, value) | sign | nan);
  });
}

// a * b + c with one rounding.
TANDEM_LANES_INLINE Lanes FusedMultiplyAdd(const Lanes& a, const Lanes& b, const Lanes& c) {
  return MakeLanes([&](int p) -> NativeFloat {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a.part[p], b.part[p], c.part[p]);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a.part[p], b.part[p], c.part[p]);
#else
    NativeFloat result;
    for (int l = 0; l < kNativeLanes; ++l) {
      result[l] = __builtin_fmaf(a.part[p][l], b.part[p][l], c.part[p][l]);
    }
    return result;
#endif
  });
}

// Thirty-two BF16 values, as sixteen pairs: lane l holds elements 2 l (low half) and 2 l + 1 (high half).
struct PairLanes {
  NativeUint part[kNativeParts];
};
TANDEM_LANES_INLINE PairLanes LoadPairs(const void* source) {
  typedef uint32_t Unaligned __attribute__((vector_size(kNativeLanes * 4), aligned(2), may_alias));
  PairLanes pairs;
#pragma GCC unroll 4
  for (int p = 0; p < kNativeParts; ++p) pairs.part[p] = static_cast<const Unaligned*>(source)[p];
  return pairs;
}
TANDEM_LANES_INLINE void StorePairs(void* target, const PairLanes& pairs) {
  typedef uint32_t Unaligned __attribute__((vector_size(kNativeLanes * 4), aligned(2), may_alias));
#pragma GCC unroll 4
  for (int p = 0; p < kNativeParts; ++p) static_cast<Unaligned*>(target)[p] = pairs.part[p];
}
// Every lane holds the pair at source.
TANDEM_LANES_INLINE PairLanes BroadcastPair(const void* source) {
  typedef uint32_t Unaligned __attribute__((aligned(2), may_alias));
  const uint32_t pair = *static_cast<const Unaligned*>(source);
  PairLanes pairs;
#pragma GCC unroll 4
  for (int p = 0; p < kNativeParts; ++p) pairs.part[p] = NativeUint{} + pair;
  return pairs;
}
// sums + a * b over the pair of each lane: the odd element first, then the even one, one rounding each. With subnormals
// taken for zero (FlushSubnormals) that is what the instruction vdpbf16ps computes, to the last bit.
TANDEM_LANES_INLINE Lanes AddDotOfPairs(const Lanes& sums, const PairLanes& a, const PairLanes& b) {
#if defined(__AVX512BF16__)
  return {{__builtin_bit_cast(NativeFloat, _mm512_dpbf16_ps(sums.part[0], __builtin_bit_cast(__m512bh, a.part[0]),
                                                            __builtin_bit_cast(__m512bh, b.part[0])))}};
#else
  const auto odd = [](const PairLanes& pairs) {
    return MakeLanes([&](int p) { return __builtin_bit_cast(NativeFloat, pairs.part[p] & 0xffff0000u); });
  };
  const auto even = [](const PairLanes& pairs) {
    return MakeLanes([&](int p) { return __builtin_bit_cast(NativeFloat, pairs.part[p] << 16); });
  };
  return FusedMultiplyAdd(even(a), even(b), FusedMultiplyAdd(odd(a), odd(b), sums));
#endif
}

TANDEM_LANES_INLINE float SumLanes(const Lanes& lanes) {
  typedef float Lanes4 __attribute__((vector_size(16)));
#if defined(__AVX512F__)
  typedef float Lanes8 __attribute__((vector_size(32)));
  const NativeFloat all = lanes.part[0];
  const Lanes8 eight = __builtin_shufflevector(all, all, 0, 1, 2, 3, 4, 5, 6, 7) +
                       __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15);
  const Lanes4 four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
#elif defined(__AVX2__)
  const NativeFloat eight = lanes.part[0] + lanes.part[1];
  const Lanes4 four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
#else
  const Lanes4 four = (lanes.part[0] + lanes.part[2]) + (lanes.part[1] + lanes.part[3]);
#endif
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// sums[i] = SumLanes(lanes[i]).
TANDEM_LANES_INLINE Lanes SumSixteenLanes(const Lanes (&lanes)[kLanes]) {
#if defined(__AVX512F__)
  // The same trees side by side: each step adds halves of two registers into one, until lane i holds tree i. Registers
  // are taken in the order that leaves the results in place.
  __m512 eights[8], fours[4], twos[2];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    // Step inputs a and b are trees 4 * (2 i % 4) + i / 2 and the one four further on.
    const __m512 a = lanes[(2 * i) % 4 * 4 + i / 2].part[0], b = lanes[(2 * i + 1) % 4 * 4 + i / 2].part[0];
    eights[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 a = eights[2 * i], b = eights[2 * i + 1];
    fours[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m512 a = fours[2 * i], b = fours[2 * i + 1];
    twos[i] = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
  return {{_mm512_add_ps(_mm512_shuffle_ps(twos[0], twos[1], 0x88), _mm512_shuffle_ps(twos[0], twos[1], 0xdd))}};
#else
  float sums[kLanes];
  for (int i = 0; i < kLanes; ++i) sums[i] = SumLanes(lanes[i]);
  return LoadLanes(sums);
#endif
}

// Bit l: lane l is at least `bound`; never where it is NaN.
TANDEM_LANES_INLINE uint32_t MaskAtLeast(const Lanes& lanes, float bound) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(lanes.part[0], _mm512_set1_ps(bound), _CMP_GE_OQ);
#elif defined(__AVX2__)
  const __m256 bounds = _mm256_set1_ps(bound);
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(lanes.part[0], bounds, _CMP_GE_OQ)) |
                               _mm256_movemask_ps(_mm256_cmp_ps(lanes.part[1], bounds, _CMP_GE_OQ)) << 8);
#else
  uint32_t mask = 0;
  for (int l = 0; l < kLanes; ++l) mask |= static_cast<uint32_t>(lanes[l] >= bound) << l;
  return mask;
#endif
}
// How often each lane was at least `bound`: counts grows by one there.
struct LaneCounts {
  NativeUint part[kNativeParts];
};
TANDEM_LANES_INLINE void CountAtLeast(const Lanes& lanes, float bound, LaneCounts& counts) {
#pragma GCC unroll 4
  for (int p = 0; p < kNativeParts; ++p) {
    counts.part[p] -= __builtin_bit_cast(NativeUint, lanes.part[p] >= NativeFloat{} + bound);
  }
}
TANDEM_LANES_INLINE int64_t SumCounts(const LaneCounts& counts) {
  int64_t sum = 0;
  for (int l = 0; l < kLanes; ++l) sum += counts.part[l / kNativeLanes][l % kNativeLanes];
  return sum;
}

// The largest lane; a NaN lane gives an unspecified lane.
TANDEM_LANES_INLINE float MaxLane(const Lanes& lanes) {
  float largest = lanes[0];
  for (int l = 1; l < kLanes; ++l) largest = lanes[l] > largest ? lanes[l] : largest;
  return largest;
}

}  // inline namespace of the width
}  // namespace tandem::kernels

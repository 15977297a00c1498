// The quantiser of one group of 128 channels by sixteen neighbouring lanes, shared by Quant128 and WriteLatent: the
// bits of kernels/reference/quantize_group.h, NaN codes included. Tested by quant_device_test.cc.
#pragma once

#include "kernels/cuda/row_math.cuh"
#include "kernels/ops.h"

namespace tandem::kernels::cuda {

inline constexpr int kThreadsOfGroup = static_cast<int>(kQuantGroup) / kVector;

struct QuantizedVector {
  uint2 codes;  // eight of E4M3
  float scale;  // of the whole group
};

__device__ __forceinline__ uint32_t PackCodes(float a, float b, float c, float d) {
  const uint32_t low = __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, __NV_E4M3);
  const uint32_t high = __nv_cvt_float2_to_fp8x2({c, d}, __NV_SATFINITE, __NV_E4M3);
  return low | (high << 16);
}

// A group that holds NaN or infinity, value by value as the CPU does it: NaN does not count for the scale.
static __device__ __noinline__ QuantizedVector QuantizeOddVector(const Pairs4& pairs, ScaleFormat format,
                                                                 unsigned lanes) {
  const Floats8 values = Unpack(pairs);
  float amax = 1e-4f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) amax = fmaxf(amax, fabsf(values.v[i]));
#pragma unroll
  for (int distance = kThreadsOfGroup / 2; distance > 0; distance /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(lanes, amax, distance));
  }
  float scale = __fmul_rn(amax, 1.0f / kE4m3Max);
  if (format == ScaleFormat::kUe8m0) scale = __uint_as_float((__float_as_uint(scale) + 0x7fffffu) & 0x7f800000u);
  const float inverse = __fdiv_rn(1.0f, scale);
  Floats8 scaled;
  uint32_t signs[2] = {};
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    scaled.v[i] = format == ScaleFormat::kUe8m0 ? __fmul_rn(values.v[i], inverse) : __fdiv_rn(values.v[i], scale);
    // The conversion forgets the sign of NaN; every other code has its value's sign already.
    signs[i / 4] |= (__float_as_uint(values.v[i]) >> 31) << (8 * (i % 4) + 7);
  }
  return {{PackCodes(scaled.v[0], scaled.v[1], scaled.v[2], scaled.v[3]) | signs[0],
           PackCodes(scaled.v[4], scaled.v[5], scaled.v[6], scaled.v[7]) | signs[1]},
          scale};
}

// All lanes of the warp must call this; `pairs` are this lane's eight values of its group.
__device__ __forceinline__ QuantizedVector QuantizeVector(const Pairs4& pairs, ScaleFormat format) {
  // Magnitudes of BF16 values compare as integers, two at a time; NaN is above all.
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) largest = __vmaxu2(largest, pairs.w[i] & 0x7fff7fffu);
  largest = max(largest & 0xffffu, largest >> 16);
#pragma unroll
  for (int distance = kThreadsOfGroup / 2; distance > 0; distance /= 2) {
    largest = max(largest, __shfl_xor_sync(kAllLanes, largest, distance));
  }
  // The sixteen lanes of a group agree on it.
  if (largest >= 0x7f80u) {
    return QuantizeOddVector(pairs, format, 0xffffu << (threadIdx.x & kThreadsOfGroup));
  }
  const float amax = fmaxf(__uint_as_float(largest << 16), 1e-4f);
  const Floats8 values = Unpack(pairs);
  QuantizedVector result;
  result.scale = __fmul_rn(amax, 1.0f / kE4m3Max);
  Floats8 scaled;
  if (format == ScaleFormat::kUe8m0) {
    const uint32_t bits = (__float_as_uint(result.scale) + 0x7fffffu) & 0x7f800000u;  // CeilPowerOfTwo
    result.scale = __uint_as_float(bits);
    const float inverse = __uint_as_float((254u << 23) - bits);  // exact: scales lie between 2^-22 and 2^120
#pragma unroll
    for (int i = 0; i < kVector; ++i) scaled.v[i] = __fmul_rn(values.v[i], inverse);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) scaled.v[i] = __fdiv_rn(values.v[i], result.scale);
  }
  result.codes = {PackCodes(scaled.v[0], scaled.v[1], scaled.v[2], scaled.v[3]),
                  PackCodes(scaled.v[4], scaled.v[5], scaled.v[6], scaled.v[7])};
  return result;
}

template <bool kIsAligned>
__device__ __forceinline__ void StoreCodes(uint8_t* target, uint2 codes) {
  if constexpr (kIsAligned) {
    *reinterpret_cast<uint2*>(target) = codes;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      target[i] = static_cast<uint8_t>(codes.x >> (8 * i));
      target[4 + i] = static_cast<uint8_t>(codes.y >> (8 * i));
    }
  }
}

}  // namespace tandem::kernels::cuda

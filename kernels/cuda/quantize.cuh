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

// All lanes of the warp must call this; `values` are this lane's eight of its group.
__device__ __forceinline__ QuantizedVector QuantizeVector(const Floats8& values, ScaleFormat format) {
  float amax = 1e-4f;
#pragma unroll
  for (int i = 0; i < kVector; ++i) amax = fmaxf(amax, fabsf(values.v[i]));  // NaN does not count
#pragma unroll
  for (int distance = kThreadsOfGroup / 2; distance > 0; distance /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, distance));
  }
  QuantizedVector result;
  Floats8 scaled;
  result.scale = __fmul_rn(amax, 1.0f / kE4m3Max);
  if (format == ScaleFormat::kUe8m0) {
    result.scale = __uint_as_float((__float_as_uint(result.scale) + 0x7fffffu) & 0x7f800000u);  // CeilPowerOfTwo
    const float inverse = __fdiv_rn(1.0f, result.scale);                                        // exact
#pragma unroll
    for (int i = 0; i < kVector; ++i) scaled.v[i] = __fmul_rn(values.v[i], inverse);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) scaled.v[i] = __fdiv_rn(values.v[i], result.scale);
  }
  uint32_t words[2];
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    uint32_t pairs[2], signs = 0;
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const int i = 4 * w + 2 * p;
      pairs[p] = __nv_cvt_float2_to_fp8x2({scaled.v[i], scaled.v[i + 1]}, __NV_SATFINITE, __NV_E4M3);
    }
    // The instruction forgets the sign of NaN; every other code has its value's sign already.
#pragma unroll
    for (int i = 0; i < 4; ++i) signs |= (__float_as_uint(values.v[4 * w + i]) >> 31) << (8 * i + 7);
    words[w] = pairs[0] | (pairs[1] << 16) | signs;
  }
  result.codes = {words[0], words[1]};
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

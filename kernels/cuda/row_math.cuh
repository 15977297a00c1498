// What kernels that work on rows share: eight BF16 values as one 16-byte access, the narrow formats, the exponential.
//
// Everything with an arithmetic value is written with the intrinsics that round once each (__fadd_rn, __fmul_rn), which
// the compiler never fuses: so the ops that add nothing up across threads have the bits of the CPU's
// (docs/kernels/numerics.md, rule 2). The payload of NaN is CUDA's own. Tested by the device tests of the ops.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/dtypes.h"
#include "kernels/tensor_view.h"

namespace tandem::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kVector = 8;  // BF16 values of a 16-byte access

// Whether every innermost row of view begins at a multiple of `bytes`.
template <typename T, size_t kRank>
bool RowsAreAligned(const TensorView<T, kRank>& view, int64_t bytes) {
  if (reinterpret_cast<uintptr_t>(view.data) % bytes != 0) return false;
  for (size_t i = 0; i + 1 < kRank; ++i) {
    if (view.shape[i] > 1 && view.strides[i] * int64_t{sizeof(T)} % bytes != 0) return false;
  }
  return true;
}

// Kernels with a thread for every eight values count threads in 32 bits: divisions are many times cheaper there.
inline bool FitsThreads(int64_t rows, int64_t width) { return rows * width < int64_t{1} << 34; }
inline constexpr char kFitsThreads[] = "below 2^34 on a device";

__device__ __forceinline__ float DeviceFloat(Bf16 value) {
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
}
__device__ __forceinline__ Bf16 DeviceBf16(float value) {
  return Bf16{__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}

// Two values side by side, a in the low half.
__device__ __forceinline__ uint32_t PackBf16(float a, float b) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Eight consecutive values, in FP32.
struct Floats8 {
  float v[kVector];
};
// The same as they lie in memory: half the registers. The even one of a pair is the low half.
struct Pairs4 {
  uint32_t w[kVector / 2];
};

template <bool kIsAligned>
__device__ __forceinline__ Pairs4 LoadPairs(const Bf16* source) {
  if constexpr (kIsAligned) {
    const uint4 bits = *reinterpret_cast<const uint4*>(source);
    return {{bits.x, bits.y, bits.z, bits.w}};
  } else {
    Pairs4 result;
#pragma unroll
    for (int i = 0; i < kVector / 2; ++i) {
      result.w[i] = source[2 * i].bits | static_cast<uint32_t>(source[2 * i + 1].bits) << 16;
    }
    return result;
  }
}

__device__ __forceinline__ Floats8 Unpack(const Pairs4& pairs) {
  Floats8 result;
#pragma unroll
  for (int i = 0; i < kVector / 2; ++i) {
    result.v[2 * i] = __uint_as_float(pairs.w[i] << 16);
    result.v[2 * i + 1] = __uint_as_float(pairs.w[i] & 0xffff0000u);
  }
  return result;
}

template <bool kIsAligned>
__device__ __forceinline__ Floats8 Load8(const Bf16* source) {
  return Unpack(LoadPairs<kIsAligned>(source));
}

template <bool kIsAligned>
__device__ __forceinline__ Floats8 Load8(const float* source) {
  Floats8 result;
  if constexpr (kIsAligned) {
    const float4 low = reinterpret_cast<const float4*>(source)[0], high = reinterpret_cast<const float4*>(source)[1];
    result = {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) result.v[i] = source[i];
  }
  return result;
}

// Rounded to BF16.
template <bool kIsAligned>
__device__ __forceinline__ void Store8(Bf16* target, const Floats8& values) {
  if constexpr (kIsAligned) {
    *reinterpret_cast<uint4*>(target) = {PackBf16(values.v[0], values.v[1]), PackBf16(values.v[2], values.v[3]),
                                         PackBf16(values.v[4], values.v[5]), PackBf16(values.v[6], values.v[7])};
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) target[i] = DeviceBf16(values.v[i]);
  }
}

// The bits of kernels/portable_math.h's Exp, operation by operation.
__device__ __forceinline__ float PortableExp(float x) {
  constexpr float kShift = 0x1.8p23f;
  const float shifted = __fadd_rn(__fmul_rn(x, 0x1.715476p0f), kShift);
  const float n = __fsub_rn(shifted, kShift);
  const float r = __fsub_rn(__fsub_rn(x, __fmul_rn(n, 0x1.62p-1f)), __fmul_rn(n, 0x1.c85fe0p-10f));
  float q = __fadd_rn(__fmul_rn(r, 0x1.687b24p-10f), 0x1.123be6p-7f);
  q = __fadd_rn(__fmul_rn(q, r), 0x1.555b5cp-5f);
  q = __fadd_rn(__fmul_rn(q, r), 0x1.55548ep-3f);
  q = __fadd_rn(__fmul_rn(q, r), 0x1.fffff8p-2f);
  const float y = __fadd_rn(__fadd_rn(__fmul_rn(__fmul_rn(r, r), q), r), 1.0f);
  const uint32_t exponent = __float_as_uint(shifted) << 23;
  const float scaled = __fmul_rn(__uint_as_float(__float_as_uint(y) + exponent - (1u << 23)), 2.0f);
  const float bounded = x < -86.0f ? 0.0f : (x > 88.72284f ? __uint_as_float(0x7f800000u) : scaled);
  return x == x ? bounded : x;
}

// 1 / (1 + exp(-x)).
__device__ __forceinline__ float PortableSigmoid(float x) { return __fdiv_rn(1.0f, __fadd_rn(1.0f, PortableExp(-x))); }

// The order of floats as that of unsigned integers: -0 equals +0, NaN counts as -inf.
__device__ __forceinline__ uint32_t OrderedKey(float value) {
  const float plain = value == value ? __fadd_rn(value, 0.0f) : __uint_as_float(0xff800000u);
  const uint32_t bits = __float_as_uint(plain);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float OfOrderedKey(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

}  // namespace tandem::kernels::cuda

// The quantiser of one group of 128 channels, shared by Quant128 and WriteLatent. Tested by quant_test.cc.
#pragma once

#include <cstdint>

#include "kernels/dtypes.h"
#include "kernels/ops.h"

namespace tandem::kernels {

// Writes 128 codes; returns the scale. A NaN among x does not touch the scale and becomes a NaN code.
inline float QuantizeGroup(const Bf16* x, ScaleFormat format, E4m3* q) {
  constexpr float kAmaxFloor = 1e-4f;
  float amax = kAmaxFloor;
  for (int64_t k = 0; k < kQuantGroup; ++k) {
    const float magnitude = ToFloat(Bf16{static_cast<uint16_t>(x[k].bits & 0x7fff)});
    amax = magnitude > amax ? magnitude : amax;
  }
  float scale = amax * (1.0f / kE4m3Max);
  if (format == ScaleFormat::kUe8m0) {
    scale = CeilPowerOfTwo(scale);
    const float inverse = 1.0f / scale;  // exact
    for (int64_t k = 0; k < kQuantGroup; ++k) q[k] = ToE4m3(ToFloat(x[k]) * inverse);
  } else {
    for (int64_t k = 0; k < kQuantGroup; ++k) q[k] = ToE4m3(ToFloat(x[k]) / scale);
  }
  return scale;
}

}  // namespace tandem::kernels

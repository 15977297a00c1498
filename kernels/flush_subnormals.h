// Subnormal numbers taken for zero, on this thread, for a scope: what BF16 dot product instructions do by themselves
// and all other levels must do as well (docs/kernels/numerics.md). Tested by lanes_test.cc.
#pragma once

#include <cstdint>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tandem::kernels {

class FlushSubnormals final {
 public:
#if defined(__x86_64__)
  // Results (bit 15) and operands (bit 6).
  FlushSubnormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }
  ~FlushSubnormals() { _mm_setcsr(saved_); }
#elif defined(__aarch64__)
  FlushSubnormals() : saved_(__builtin_aarch64_get_fpcr()) { __builtin_aarch64_set_fpcr(saved_ | (1u << 24)); }
  ~FlushSubnormals() { __builtin_aarch64_set_fpcr(saved_); }
#else
#error "this processor's way to flush subnormals is not known here"
#endif
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  const uint32_t saved_;
};

}  // namespace tandem::kernels

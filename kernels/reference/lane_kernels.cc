#include "kernels/reference/lane_kernels.h"

namespace tandem::kernels {

extern const LaneKernels kBaselineLaneKernels;
#if defined(__x86_64__)
extern const LaneKernels kAvx2LaneKernels;
extern const LaneKernels kAvx512LaneKernels;
#endif

const LaneKernels* LaneKernelsAt(LaneLevel level) {
  if (level == LaneLevel::kBaseline) return &kBaselineLaneKernels;
#if defined(__x86_64__)
  if (level == LaneLevel::kAvx2) return __builtin_cpu_supports("avx2") ? &kAvx2LaneKernels : nullptr;
  // The parts that the flags in BUILD.bazel allow the compiler to use.
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (level == LaneLevel::kAvx512) return has_avx512 ? &kAvx512LaneKernels : nullptr;
#endif
  return nullptr;
}

const LaneKernels& BestLaneKernels() {
  static const LaneKernels* const best = [] {
    const LaneKernels* kernels = LaneKernelsAt(LaneLevel::kAvx512);
    if (kernels == nullptr) kernels = LaneKernelsAt(LaneLevel::kAvx2);
    return kernels != nullptr ? kernels : &kBaselineLaneKernels;
  }();
  return *best;
}

}  // namespace tandem::kernels

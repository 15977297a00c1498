// The product in BF16, to FP32: Bf16LinearF32.
#include "kernels/cuda/warpgroup_launch.cuh"

namespace tandem::kernels::cuda {

absl::Status LaunchBf16ToF32(Stream stream, absl::string_view op, const ProductTask& task) {
  return LaunchWarpgroupProduct<wgmma::Format::kBf16, float, false>(stream, op, task);
}

}  // namespace tandem::kernels::cuda

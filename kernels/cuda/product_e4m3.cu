// The product in E4M3: Fp8Linear and Fp8GroupedLinear.
#include "kernels/cuda/warpgroup_launch.cuh"

namespace tandem::kernels::cuda {

absl::Status LaunchE4m3ToBf16(Stream stream, absl::string_view op, const ProductTask& task) {
  return LaunchWarpgroupProduct<wgmma::Format::kE4m3, __nv_bfloat16, true>(stream, op, task);
}

}  // namespace tandem::kernels::cuda

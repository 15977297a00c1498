// The product in BF16, to BF16: Bf16Linear and MlaUnabsorbOutput.
#include "kernels/cuda/warpgroup_launch.cuh"

namespace tandem::kernels::cuda {

absl::Status LaunchBf16ToBf16(Stream stream, absl::string_view op, const ProductTask& task) {
  return LaunchWarpgroupProduct<wgmma::Format::kBf16, __nv_bfloat16, true>(stream, op, task);
}

}  // namespace tandem::kernels::cuda

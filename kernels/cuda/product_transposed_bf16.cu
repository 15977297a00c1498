// The product in BF16 with weights along the outputs: MlaAbsorbQuery.
#include "kernels/cuda/warpgroup_launch.cuh"

namespace tandem::kernels::cuda {

absl::Status LaunchTransposedBf16ToBf16(Stream stream, absl::string_view op, const ProductTask& task) {
  return LaunchBestShape<wgmma::Format::kBf16Transposed, __nv_bfloat16, TileShape<1, 1, 8>, TileShape<1, 1, 16>,
                         TileShape<1, 1, 32>, TileShape<1, 1, 64>, TileShape<2, 1, 32>, TileShape<2, 1, 64>,
                         TileShape<2, 1, 128>>(stream, op, task);
}

}  // namespace tandem::kernels::cuda

// Chooses and launches the kernel of a product. The choice of a kernel is by kind alone, never by the number of rows: a
// row's bits must not depend on it.
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/warp_product.cuh"

namespace tandem::kernels::cuda {
namespace {

template <Operands kOperands, typename Output>
void LaunchWarpProduct(Stream stream, const ProductTask& task) {
  const int64_t row_tiles = task.group_offsets == nullptr ? (task.num_rows + kWarpTile - 1) / kWarpTile
                                                          : TileBound(task.num_rows, task.num_groups, kWarpTile);
  const dim3 grid(static_cast<unsigned>((task.out_dim + kWarpTile - 1) / kWarpTile), static_cast<unsigned>(row_tiles),
                  static_cast<unsigned>(task.num_heads));
  if (task.k_segments == 1) {
    WarpProductKernel<kOperands, Output, false><<<grid, kWarpThreads, 0, stream>>>(task);
  } else {
    WarpProductKernel<kOperands, Output, true><<<grid, kWarpThreads, 0, stream>>>(task);
  }
}

}  // namespace

absl::Status LaunchProduct(Stream stream, absl::string_view op, ProductKind kind, ProductTask task) {
  if (task.num_rows == 0 || task.out_dim == 0 || task.num_heads == 0) return absl::OkStatus();
  task.steps_of_segment = static_cast<int>((task.in_bytes / task.k_segments + kStepBytes - 1) / kStepBytes);
  switch (kind) {
    case ProductKind::kE4m3ToBf16:
      LaunchWarpProduct<Operands::kE4m3, __nv_bfloat16>(stream, task);
      break;
    case ProductKind::kBf16ToBf16:
      LaunchWarpProduct<Operands::kBf16, __nv_bfloat16>(stream, task);
      break;
    case ProductKind::kBf16ToF32:
      LaunchWarpProduct<Operands::kBf16, float>(stream, task);
      break;
    case ProductKind::kTransposedBf16ToBf16:
      LaunchWarpProduct<Operands::kBf16Transposed, __nv_bfloat16>(stream, task);
      break;
  }
  return LaunchStatus(op);
}

}  // namespace tandem::kernels::cuda

// Chooses the kernel of a product, by kind alone, never by the number of rows: a row's bits must not depend on it.
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/warp_product.cuh"

namespace tandem::kernels::cuda {
namespace {

absl::Status LaunchWarpProduct(Stream stream, absl::string_view op, const ProductTask& task) {
  const dim3 grid(static_cast<unsigned>((task.out_dim + kWarpTile - 1) / kWarpTile),
                  static_cast<unsigned>((task.num_rows + kWarpTile - 1) / kWarpTile),
                  static_cast<unsigned>(task.num_heads));
  WarpProductKernel<<<grid, kWarpThreads, 0, stream>>>(task);
  return LaunchStatus(op);
}

}  // namespace

absl::Status LaunchProduct(Stream stream, absl::string_view op, ProductKind kind, ProductTask task) {
  if (task.num_rows == 0 || task.out_dim == 0 || task.num_heads == 0) return absl::OkStatus();
  task.steps_of_segment = static_cast<int>((task.in_bytes / task.k_segments + kStepBytes - 1) / kStepBytes);
  switch (kind) {
    case ProductKind::kE4m3ToBf16:
      return LaunchE4m3ToBf16(stream, op, task);
    case ProductKind::kBf16ToBf16:
      return LaunchBf16ToBf16(stream, op, task);
    case ProductKind::kBf16ToF32:
      return LaunchBf16ToF32(stream, op, task);
    case ProductKind::kTransposedBf16ToBf16:
      return LaunchWarpProduct(stream, op, task);
  }
  return absl::InternalError("unknown kind of product");
}

}  // namespace tandem::kernels::cuda

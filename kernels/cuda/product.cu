// Chooses the kernel of a product, by kind alone, never by the number of rows: a row's bits must not depend on it. One
// file a kind: they take a while to compile.
#include "absl/status/status.h"
#include "kernels/cuda/product.cuh"

namespace tandem::kernels::cuda {

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
      return LaunchTransposedBf16ToBf16(stream, op, task);
  }
  return absl::InternalError("unknown kind of product");
}

}  // namespace tandem::kernels::cuda

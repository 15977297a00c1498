// The descriptions of a product's operands that the copy engine wants. For .cu files only.
#pragma once

#include <cuda.h>

#include "absl/status/statusor.h"
#include "kernels/cuda/product.cuh"

namespace tandem::kernels::cuda {

// Operands as tensors of bytes, read in boxes of so many rows of 128 bytes, swizzled by 128 bytes, with zeros beyond
// the edges. They name addresses, not contents: a captured launch keeps them.
struct TensorMaps {
  CUtensorMap weights;  // [groups or heads, out_dim, in_bytes]; transposed: [heads, in_dim, bytes of outputs]
  CUtensorMap tokens;   // [heads, num_rows, in_bytes]; where a list chooses the rows, not to be used
};
absl::StatusOr<TensorMaps> MakeTensorMaps(const ProductTask& task, bool is_transposed, int box_weights, int box_tokens);

}  // namespace tandem::kernels::cuda

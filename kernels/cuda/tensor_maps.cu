// The driver's encoder is found at run time, so that the binary needs no driver to start.
#include <cuda_runtime.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_maps.cuh"

namespace tandem::kernels::cuda {
namespace {

using Encoder = decltype(&cuTensorMapEncodeTiled);

absl::StatusOr<Encoder> FindEncoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess) return CudaStatus(error, "cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    return absl::FailedPreconditionError(
        "cuTensorMapEncodeTiled: the driver has no such function, at least 12.0 needed");
  }
  return reinterpret_cast<Encoder>(function);
}

// [count, num_rows, row_bytes], the outer two with strides in bytes.
absl::StatusOr<CUtensorMap> Encode(const uint8_t* data, int64_t count, int64_t stride, int64_t num_rows,
                                   int64_t row_stride, int64_t row_bytes, int box_rows) {
  static const absl::StatusOr<Encoder> encoder = FindEncoder();
  if (!encoder.ok()) return encoder.status();
  // A dimension of one has no stride, but the encoder wants one.
  if (num_rows == 1) row_stride = (row_bytes + 15) / 16 * 16;
  if (count == 1) stride = row_stride;
  const cuuint64_t dims[3] = {static_cast<cuuint64_t>(row_bytes), static_cast<cuuint64_t>(num_rows),
                              static_cast<cuuint64_t>(count)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(row_stride), static_cast<cuuint64_t>(stride)};
  const cuuint32_t box[3] = {kStepBytes, static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t every[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = (*encoder)(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, const_cast<uint8_t*>(data), dims, strides,
                                     box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return absl::InternalError(absl::StrCat("cuTensorMapEncodeTiled: CUDA error ", static_cast<int>(result), " for [",
                                            count, ", ", num_rows, ", ", row_bytes, "] bytes of strides ", stride,
                                            " and ", row_stride));
  }
  return map;
}

}  // namespace

absl::StatusOr<TensorMaps> MakeTensorMaps(const ProductTask& task, bool is_transposed, int box_weights,
                                          int box_tokens) {
  const int64_t count = task.group_offsets != nullptr ? task.num_groups : task.num_heads;
  const absl::StatusOr<CUtensorMap> weights =
      Encode(task.w, count, task.w_group_stride, is_transposed ? task.in_bytes / 2 : task.out_dim, task.w_stride,
             is_transposed ? task.out_dim * 2 : task.in_bytes, box_weights);
  if (!weights.ok()) return weights.status();
  if (task.x_rows != nullptr) return TensorMaps{.weights = *weights, .tokens = *weights};
  const absl::StatusOr<CUtensorMap> tokens =
      Encode(task.x, task.num_heads, task.x_head_stride, task.num_rows, task.x_stride, task.in_bytes, box_tokens);
  if (!tokens.ok()) return tokens.status();
  return TensorMaps{.weights = *weights, .tokens = *tokens};
}

}  // namespace tandem::kernels::cuda

// Argmax: a cluster of eight blocks shares a row, so that one row alone already draws on eight multiprocessors.
//
// Each thread keeps the largest (value, lower index first) of its part as one 64-bit key; keys are compared, never
// added, so the answer is exact whatever the order. Bytes: 4 per logit. Tested by rows_device_test.cc.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <limits>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/row_math.cuh"
#include "kernels/op_border.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kBlocksOfRow = 8;
constexpr int kThreads = 512;

__device__ __forceinline__ uint64_t KeyOf(float logit, uint32_t index) {
  return (static_cast<uint64_t>(OrderedKey(logit)) << 32) | (0xffffffffu - index);
}
__device__ __forceinline__ uint64_t Larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

template <bool kIsAligned>
__global__ void __cluster_dims__(kBlocksOfRow, 1, 1) __launch_bounds__(kThreads)
    ArgmaxKernel(const float* logits, int64_t stride, uint32_t vocab_size, int32_t* tokens) {
  const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  const uint32_t part = cluster.block_rank();
  const int64_t row = blockIdx.x / kBlocksOfRow;
  const float* values = logits + row * stride;
  uint64_t best = 0;
  const uint32_t first = part * kThreads + threadIdx.x;
  constexpr uint32_t kStep = kBlocksOfRow * kThreads;
  uint32_t begin = 0;  // of what is left for single loads
  if constexpr (kIsAligned) {
    const uint32_t num_vectors = vocab_size / 4;
#pragma unroll 4
    for (uint32_t i = first; i < num_vectors; i += kStep) {
      const float4 v = __ldcs(reinterpret_cast<const float4*>(values) + i);
      best = Larger(best, Larger(Larger(KeyOf(v.x, 4 * i), KeyOf(v.y, 4 * i + 1)),
                                 Larger(KeyOf(v.z, 4 * i + 2), KeyOf(v.w, 4 * i + 3))));
    }
    begin = num_vectors * 4;
  }
  for (uint32_t i = begin + first; i < vocab_size; i += kStep) best = Larger(best, KeyOf(values[i], i));

  __shared__ uint64_t best_of_warp[kThreads / kWarp];
  __shared__ uint64_t best_of_block[kBlocksOfRow];  // the first block's is written by all
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    best = Larger(best, __shfl_xor_sync(kAllLanes, best, distance));
  }
  if (threadIdx.x % kWarp == 0) best_of_warp[threadIdx.x / kWarp] = best;
  // Every block of the cluster must have started before another one's memory is written.
  cluster.sync();
  if (threadIdx.x == 0) {
    for (const uint64_t other : best_of_warp) best = Larger(best, other);
    *cluster.map_shared_rank(best_of_block + part, 0) = best;
  }
  cluster.sync();
  if (part == 0 && threadIdx.x == 0) {
    for (const uint64_t other : best_of_block) best = Larger(best, other);
    tokens[row] = static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(best));
  }
}

}  // namespace

absl::Status Argmax(Stream stream, const ArgmaxArgs& args) {
  const int64_t num_rows = args.logits.shape[0], vocab_size = args.logits.shape[1];
  OpBorder border("Argmax");
  border.Shape("logits", args.logits, args.logits.shape)
      .Require(vocab_size >= 1 && vocab_size <= std::numeric_limits<int32_t>::max(), "vocab_size", vocab_size,
               "in [1, 2^31)")
      .Shape("tokens", args.tokens, {num_rows});
  if (!border.ok()) return border.status();
  if (num_rows == 0) return absl::OkStatus();
  auto* kernel = RowsAreAligned(args.logits, 16) ? ArgmaxKernel<true> : ArgmaxKernel<false>;
  kernel<<<static_cast<unsigned>(num_rows * kBlocksOfRow), kThreads, 0, stream>>>(
      args.logits.data, args.logits.strides[0], static_cast<uint32_t>(vocab_size), args.tokens.data);
  return LaunchStatus("Argmax");
}

}  // namespace tandem::kernels::cuda

// y = x w^T for few outputs and long sums (the router's gate, the indexer's projections, the latent's): a cluster of
// blocks shares one tile, each takes an equal part of the summed axis, and their FP32 sums are added in the order of
// the axis through each other's shared memory. So 64 outputs are read by eight multiprocessors at a time, not by one.
//
// The number of parts depends on the weights' shape alone (NumSplits), for a row's bits must not depend on the number
// of rows: these layers take this way with any number of rows. Tested by linear_device_test.cc.
#pragma once

#include "kernels/cuda/warpgroup_product.cuh"

namespace tandem::kernels::cuda {

// 1: the product is not split.
inline int NumSplits(const ProductTask& task) {
  constexpr int64_t kOutsMax = 640, kStepsMin = 4;
  if (task.out_dim > kOutsMax || task.k_segments > 1 || task.group_offsets != nullptr || task.num_heads > 1) return 1;
  const int64_t num_steps = (task.in_bytes + kStepBytes - 1) / kStepBytes;
  int splits = 1;
  while (splits < 8 && num_steps >= splits * 2 * kStepsMin) splits *= 2;
  return splits;
}

// Grid: num_splits blocks a tile, which are a cluster.
template <wgmma::Format kFormat, typename Output, typename Shape>
__global__ void __launch_bounds__(Shape::kThreads)
    SplitProductKernel(const __grid_constant__ CUtensorMap weight_map, const __grid_constant__ CUtensorMap token_map,
                       const __grid_constant__ ProductTask task, int num_splits) {
  static_assert(Shape::kWarpgroups == 1 && Shape::kBlocks == 1);
  static_assert(Shape::kTokens * 64 * 4 <= Shape::kStages * Shape::kWeightBytes,
                "the parts' sums take the ring's place");
  extern __shared__ uint8_t memory[];
  const SharedPlan<Shape> shared(memory);
  InitBarriers(shared, task.x_rows != nullptr, weight_map, token_map);
  ptx::LaunchDependents();
  const TileWalk walk(task, shared.tile_counts, Shape::kOuts, Shape::kTokens);
  __syncthreads();
  const int rank = static_cast<int>(blockIdx.x) % num_splits, thread = threadIdx.x;
  const int num_steps = static_cast<int>((task.in_bytes + kStepBytes - 1) / kStepBytes);
  const Work work = {.first_tile = static_cast<int>(blockIdx.x) / num_splits,
                     .tile_stride = walk.num_tiles(),
                     .step_begin = num_steps * rank / num_splits,
                     .step_end = num_steps * (rank + 1) / num_splits};
  const bool is_consumer = thread < 128;
  if (is_consumer) {
    ptx::WaitForGrids();
    Consume<kFormat, Shape>(task, walk, shared, work, [&](const ProductTile&, const auto& sums) {
      ptx::SynchronizeSome(1, 128);  // all of the ring is read
      auto* parts = reinterpret_cast<float*>(memory + (shared.weights - ptx::SharedAddress(memory)));
#pragma unroll
      for (int i = 0; i < Shape::kTokens / 2; ++i) parts[i * 128 + thread] = sums[0][i];
    });
  } else {
    Produce<kFormat, Shape>(weight_map, token_map, task, walk, shared, work);
  }
  ptx::SynchronizeCluster();
  if (is_consumer) {
    const ProductTile tile = walk.Find(work.first_tile);
    for (int j = rank; j < Shape::kTokens / 8; j += num_splits) {
      float sums[4] = {};
      for (int part = 0; part < num_splits; ++part) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float of_part = ptx::LoadFromBlock(shared.weights + ((j * 4 + c) * 128 + thread) * 4, part);
          sums[c] = part == 0 ? of_part : __fadd_rn(sums[c], of_part);
        }
      }
      StoreOutputs(sums, static_cast<uint8_t*>(task.y), task, tile, tile.out_begin, j * 8,
                   static_cast<Output*>(nullptr));
    }
  }
  ptx::SynchronizeCluster();  // nobody leaves while others read its sums
}

}  // namespace tandem::kernels::cuda

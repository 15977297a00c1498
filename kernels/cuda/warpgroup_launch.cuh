// Chooses the shape of a product's tiles and launches warpgroup_product.cuh or split_product.cuh with it.
//
// The choice is by a model of the time in clock cycles: rounds of tiles, times steps, times what a step takes at least
// (bytes from the second-level cache for all multiprocessors together and for one alone, multiplications, latency). It
// may depend on the number of rows, since shapes change no bit.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/split_product.cuh"
#include "kernels/cuda/tensor_maps.cuh"
#include "kernels/cuda/warpgroup_product.cuh"

namespace tandem::kernels::cuda {

// Of a product without groups; those of a cluster count as one.
template <typename Shape>
int64_t NumTiles(const ProductTask& task) {
  constexpr int kRows = Shape::kTokens * Shape::kCluster;
  return task.num_heads * ((task.num_rows + kRows - 1) / kRows) * ((task.out_dim + Shape::kOuts - 1) / Shape::kOuts);
}

template <typename Shape>
double EstimateCycles(const ProductTask& task, int num_multiprocessors) {
  // Of groups the sizes are unknown here: as if those that can have rows had half as many again as on average.
  const int64_t groups =
      task.group_offsets == nullptr ? task.num_heads : std::min<int64_t>(task.num_groups, task.num_rows);
  const int64_t rows = task.group_offsets == nullptr ? task.num_rows : (task.num_rows * 3 / 2 + groups - 1) / groups;
  const int64_t tiles =
      groups * ((rows + Shape::kTokens - 1) / Shape::kTokens) * ((task.out_dim + Shape::kOuts - 1) / Shape::kOuts);
  const int64_t rounds = (tiles + num_multiprocessors - 1) / num_multiprocessors;
  const auto busy = static_cast<double>(std::min<int64_t>(tiles, num_multiprocessors));
  constexpr double kCacheBytesOfAll = 4200, kCacheBytesOfOne = 56, kLatency = 160;
  constexpr double kTensorCycles = Shape::kOuts * Shape::kTokens / 32.0 / (Shape::kIsOverlapped ? 0.85 : 0.8);
  const double step = std::max(
      {Shape::kStageBytes * busy / kCacheBytesOfAll, Shape::kStageBytes / kCacheBytesOfOne, kTensorCycles, kLatency});
  const auto num_steps = static_cast<double>((task.in_bytes + kStepBytes - 1) / kStepBytes);
  return static_cast<double>(rounds) * (num_steps * step + 1000);
}

// Clusters of `cluster` blocks. The grid may start while the one before it ends: its kernel says what has to wait.
template <typename Kernel, typename... Args>
absl::Status LaunchGrid(Stream stream, absl::string_view op, Kernel kernel, int64_t blocks, int cluster, int threads,
                        int shared_bytes, const Args&... args) {
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return CudaStatus(error, op);
  cudaLaunchAttribute attributes[2] = {{.id = cudaLaunchAttributeProgrammaticStreamSerialization},
                                       {.id = cudaLaunchAttributeClusterDimension}};
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  const cudaLaunchConfig_t config = {.gridDim = dim3(static_cast<unsigned>(blocks)),
                                     .blockDim = dim3(static_cast<unsigned>(threads)),
                                     .dynamicSmemBytes = static_cast<size_t>(shared_bytes),
                                     .stream = stream,
                                     .attrs = attributes,
                                     .numAttrs = cluster > 1 ? 2u : 1u};
  error = cudaLaunchKernelEx(&config, kernel, args...);
  if (error != cudaSuccess) return CudaStatus(error, op);
  return LaunchStatus(op);
}

template <wgmma::Format kFormat, typename Output, typename Shape>
absl::Status LaunchShape(Stream stream, absl::string_view op, const ProductTask& task, int num_multiprocessors) {
  constexpr bool kIsTransposed = kFormat == wgmma::Format::kBf16Transposed;
  const absl::StatusOr<TensorMaps> maps = MakeTensorMaps(
      task, kIsTransposed, kIsTransposed ? kStepBytes / 2 : Shape::kOuts / Shape::kCluster, Shape::kTokens);
  if (!maps.ok()) return maps.status();
  const int64_t most = num_multiprocessors / Shape::kCluster;
  const int64_t clusters = task.group_offsets != nullptr ? most : std::min(NumTiles<Shape>(task), most);
  return LaunchGrid(stream, op, WarpgroupProductKernel<kFormat, Output, Shape>, clusters * Shape::kCluster,
                    Shape::kCluster, Shape::kThreads, Shape::kSharedBytes, maps->weights, maps->tokens, task);
}

template <wgmma::Format kFormat, typename Output, int kTokens>
absl::Status LaunchSplit(Stream stream, absl::string_view op, const ProductTask& task, int num_splits) {
  using Shape = TileShape<1, 1, kTokens, Waiting::kNowhere, 6>;  // few stages: two blocks and more on a multiprocessor
  const absl::StatusOr<TensorMaps> maps = MakeTensorMaps(task, false, Shape::kOuts, Shape::kTokens);
  if (!maps.ok()) return maps.status();
  return LaunchGrid(stream, op, SplitProductKernel<kFormat, Output, Shape>, NumTiles<Shape>(task) * num_splits,
                    num_splits, Shape::kThreads, Shape::kSharedBytes, maps->weights, maps->tokens, task, num_splits);
}

template <wgmma::Format kFormat, typename Output, typename... Shapes>
absl::Status LaunchBestShape(Stream stream, absl::string_view op, const ProductTask& task) {
  int device = 0, num_multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&num_multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error != cudaSuccess) return CudaStatus(error, op);
  constexpr int kCount = sizeof...(Shapes);
  const std::array<double, kCount> cycles = {EstimateCycles<Shapes>(task, num_multiprocessors)...};
  using Launch = decltype(&LaunchShape<kFormat, Output, TileShape<1, 1, 8>>);
  constexpr std::array<Launch, kCount> kLaunches = {&LaunchShape<kFormat, Output, Shapes>...};
  if (task.shape >= kCount) return absl::OutOfRangeError(absl::StrCat(op, ": there is no tile shape ", task.shape));
  const auto best = std::min_element(cycles.begin(), cycles.end()) - cycles.begin();
  return kLaunches[task.shape >= 0 ? task.shape : best](stream, op, task, num_multiprocessors);
}

// kCanBeSegmented: whether the op's sums may have segments.
template <wgmma::Format kFormat, typename Output, bool kCanBeSegmented>
absl::Status LaunchWarpgroupProduct(Stream stream, absl::string_view op, const ProductTask& task) {
  if (const int num_splits = NumSplits(task); num_splits > 1) {
    if (task.num_rows <= 8) return LaunchSplit<kFormat, Output, 8>(stream, op, task, num_splits);
    if (task.num_rows <= 16) return LaunchSplit<kFormat, Output, 16>(stream, op, task, num_splits);
    if (task.num_rows <= 32) return LaunchSplit<kFormat, Output, 32>(stream, op, task, num_splits);
    return LaunchSplit<kFormat, Output, 64>(stream, op, task, num_splits);
  }
  if constexpr (kCanBeSegmented) {
    if (task.k_segments > 1) {
      constexpr Waiting kHere = Waiting::kRegisters;
      return LaunchBestShape<kFormat, Output, TileShape<1, 1, 8, kHere>, TileShape<1, 1, 16, kHere>,
                             TileShape<1, 1, 32, kHere>, TileShape<1, 1, 64, kHere>, TileShape<2, 1, 32, kHere>,
                             TileShape<2, 1, 64, kHere>, TileShape<2, 1, 128, Waiting::kSpread>,
                             TileShape<2, 1, 128, Waiting::kSpread, 24, 2>>(stream, op, task);
    }
  }
  return LaunchBestShape<kFormat, Output, TileShape<1, 1, 8>, TileShape<1, 1, 16>, TileShape<1, 1, 32>,
                         TileShape<1, 1, 64>, TileShape<2, 1, 32>, TileShape<2, 1, 64>, TileShape<2, 1, 128>,
                         TileShape<2, 2, 128>, TileShape<2, 2, 128, Waiting::kNowhere, 24, 2>>(stream, op, task);
}

}  // namespace tandem::kernels::cuda

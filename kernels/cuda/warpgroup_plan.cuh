// A product's tile, and where a block's shared memory has what: what its producer and its consumers agree on. Tested by
// product_device_test.cc and linear_device_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/product.cuh"
#include "kernels/cuda/product_tiles.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/segment_tree.cuh"

namespace tandem::kernels::cuda {

// A tile of kOuts outputs of kTokens rows: kWarpgroups that multiply, kBlocks of 64 outputs each.
// kCluster blocks with the same outputs of neighbouring tiles of tokens share what they read of the weights.
template <int kWarpgroupsValue, int kBlocksValue, int kTokensValue, Waiting kWaitingValue = Waiting::kNowhere,
          int kStagesMax = 24, int kClusterValue = 1>
struct TileShape {
  static constexpr int kCluster = kClusterValue;
  static constexpr int kWarpgroups = kWarpgroupsValue, kBlocks = kBlocksValue, kTokens = kTokensValue;
  static constexpr int kOuts = kWarpgroups * kBlocks * 64;
  static constexpr int kThreads = (kWarpgroups + 1) * 128;
  static constexpr int kWeightBytes = kOuts * kStepBytes, kTokenBytes = kTokens * kStepBytes;
  static constexpr int kStageBytes = kWeightBytes + kTokenBytes;
  // A panel has, for each of its steps, the scales of the tile's tokens times that of each 128 outputs.
  static constexpr int kScaleRows = (kOuts + 127) / 128, kScales = kScaleRows * kTokens;
  static constexpr int kPanelSteps = kScales <= 64 ? 16 : 8;
  static constexpr int kPanels = kScales <= 32 ? 4 : kScales <= 128 ? 3 : 2;
  static constexpr int kPanelBytes = kPanelSteps * kScales * 4;
  // Where sums of segments wait. Of four blocks of 64 outputs there is no room for any.
  static constexpr Waiting kWaiting = kWaitingValue;
  static_assert(kWaiting == Waiting::kNowhere || kBlocks == 1);
  static constexpr int kWaitingBytes = kWaiting == Waiting::kSpread ? kOuts * kTokens * 4 : 0;
  static constexpr int kMaxSharedBytes = 227 * 1024;
  static constexpr int kFixedBytes =
      1024 + (kMaxGroups + 1) * 4 + kStagesMax * 16 + kPanels * (kPanelBytes + 16) + kWaitingBytes;
  static constexpr int kStages = std::min((kMaxSharedBytes - kFixedBytes) / kStageBytes, kStagesMax);
  static constexpr int kSharedBytes = kFixedBytes + kStages * kStageBytes;
  // Two sets of step sums let the tensor cores run while the other set is added up, where registers allow.
  static constexpr bool kIsOverlapped = kBlocks == 1 && kWaiting != Waiting::kSpread;
};

// A place in the ring of stages. Parity: of the phase in which it is filled this time round.
template <int kStages>
struct RingPlace {
  __device__ void Advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
  int stage = 0;
  uint32_t parity = 0;
};

// Where a block's shared memory has what; addresses as instructions take them.
template <typename Shape>
struct SharedPlan {
  __device__ explicit SharedPlan(uint8_t* memory) {
    const uint32_t begin = (ptx::SharedAddress(memory) + 1023) & ~1023u;  // swizzled tiles begin at multiples of 1024
    weights = begin;
    tokens = weights + Shape::kStages * Shape::kWeightBytes;
    const uint32_t panels_begin = tokens + Shape::kStages * Shape::kTokenBytes;
    barriers = panels_begin + Shape::kPanels * Shape::kPanelBytes;
    const uint32_t end = barriers + (Shape::kStages + Shape::kPanels) * 16;
    panels = reinterpret_cast<float*>(memory + (panels_begin - ptx::SharedAddress(memory)));
    waiting = reinterpret_cast<float*>(memory + (end - ptx::SharedAddress(memory)));
    tile_counts = reinterpret_cast<int*>(waiting + Shape::kWaitingBytes / 4);
  }
  __device__ uint32_t Weights(int stage) const { return weights + stage * Shape::kWeightBytes; }
  __device__ uint32_t Tokens(int stage) const { return tokens + stage * Shape::kTokenBytes; }
  __device__ uint32_t Full(int stage) const { return barriers + stage * 16; }
  __device__ uint32_t Empty(int stage) const { return barriers + stage * 16 + 8; }
  __device__ uint32_t PanelFull(int panel) const { return barriers + (Shape::kStages + panel) * 16; }
  __device__ uint32_t PanelEmpty(int panel) const { return barriers + (Shape::kStages + panel) * 16 + 8; }
  // Of a panel's step: [kScaleRows, kTokens].
  __device__ float* Scales(int panel, int step) const {
    return panels + (panel * Shape::kPanelSteps + step) * Shape::kScales;
  }

  uint32_t weights, tokens, barriers;
  float* panels;
  float* waiting;    // sums of segments
  int* tile_counts;  // [num_groups + 1]
};

// What a block does: which tiles, and which steps of each.
struct Work {
  int first_tile = 0;
  int tile_stride = 0;
  int step_begin = 0;
  int step_end = 0;
};

// This block's part of a tile that its cluster shares.
template <typename Shape>
__device__ ProductTile FindTile(const TileWalk& walk, int number) {
  ProductTile tile = walk.Find(number);
  if constexpr (Shape::kCluster > 1) {
    tile.row_begin += static_cast<int>(blockIdx.x) % Shape::kCluster * Shape::kTokens;
    if (tile.row_end > tile.row_begin + Shape::kTokens) tile.row_end = tile.row_begin + Shape::kTokens;
  }
  return tile;
}

}  // namespace tandem::kernels::cuda

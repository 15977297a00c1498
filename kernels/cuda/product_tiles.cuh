// Which tiles of a product there are and in which order the blocks of a persistent kernel walk through them: block b
// takes tiles b, b + gridDim.x, ... . Tiles never cross a head or a group of rows.
//
// Of groups only the device knows the sizes: each block counts their tiles once, into shared memory, and finds a tile's
// group by binary search. An empty group has no tile. Tiles of a group's same rows follow each other, so that groups of
// one tile of rows (decode) read their weights once, one after the other.
// Otherwise eight tiles of outputs take turns before the rows go on: what runs at a time shares weights and rows in the
// second-level cache.
// Tested by linear_device_test.cc.
#pragma once

#include <cstdint>

#include "kernels/cuda/product.cuh"

namespace tandem::kernels::cuda {

struct ProductTile {
  int group = 0;  // whose weights: the group's or the head's
  int head = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;  // of the tile, at most row_begin + tokens
  int64_t out_begin = 0;
};

class TileWalk final {
 public:
  // All threads of a block; a barrier of the block must follow. counts: [num_groups + 1] in shared memory.
  __device__ TileWalk(const ProductTask& task, int* counts, int outs, int tokens)
      : task_(task),
        counts_(counts),
        outs_(outs),
        tokens_(tokens),
        out_tiles_(static_cast<int>((task.out_dim + outs - 1) / outs)),
        row_tiles_(static_cast<int>((task.num_rows + tokens - 1) / tokens)) {
    if (task.group_offsets == nullptr) return;
    for (int g = threadIdx.x; g < task.num_groups; g += blockDim.x) {
      counts[g + 1] = (task.group_offsets[g + 1] - task.group_offsets[g] + tokens - 1) / tokens;
    }
    __syncthreads();
    if (threadIdx.x >= 32) return;
    // Running sums, 32 groups at a time.
    int before = 0;
    for (int base = 0; base < task.num_groups; base += 32) {
      const int g = base + static_cast<int>(threadIdx.x);
      int sum = g < task.num_groups ? counts[g + 1] : 0;
      for (int distance = 1; distance < 32; distance *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (static_cast<int>(threadIdx.x) >= distance) sum += other;
      }
      if (g < task.num_groups) counts[g + 1] = before + sum;
      before += __shfl_sync(0xffffffffu, sum, 31);
    }
    if (threadIdx.x == 0) counts[0] = 0;
  }

  // After the barrier.
  __device__ int num_tiles() const {
    return task_.group_offsets != nullptr ? counts_[task_.num_groups] * out_tiles_
                                          : task_.num_heads * row_tiles_ * out_tiles_;
  }
  __device__ ProductTile Find(int number) const {
    ProductTile tile;
    if (task_.group_offsets != nullptr) {
      const int row_tile = number / out_tiles_;
      int low = 0, high = task_.num_groups - 1;  // the last group that begins at or before row_tile
      while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (counts_[middle] <= row_tile) {
          low = middle;
        } else {
          high = middle - 1;
        }
      }
      tile.group = low;
      tile.row_begin = task_.group_offsets[low] + int64_t{row_tile - counts_[low]} * tokens_;
      tile.row_end = task_.group_offsets[low + 1];
      tile.out_begin = int64_t{number % out_tiles_} * outs_;
    } else {
      constexpr int kBand = 8;
      const int of_head = row_tiles_ * out_tiles_;
      tile.group = tile.head = number / of_head;
      const int rest = number % of_head, band = rest / (kBand * row_tiles_);
      const int width = out_tiles_ - band * kBand < kBand ? out_tiles_ - band * kBand : kBand;
      const int inside = rest - band * kBand * row_tiles_;
      tile.row_begin = int64_t{inside / width} * tokens_;
      tile.row_end = task_.num_rows;
      tile.out_begin = int64_t{band * kBand + inside % width} * outs_;
    }
    if (tile.row_end > tile.row_begin + tokens_) tile.row_end = tile.row_begin + tokens_;
    return tile;
  }

 private:
  const ProductTask& task_;
  const int* counts_;
  int outs_;
  int tokens_;
  int out_tiles_;
  int row_tiles_;
};

}  // namespace tandem::kernels::cuda

// Which rows a block of a grouped product works on: groups of rows of unknown sizes, known only on the device, cut into
// tiles of equal height that never cross a group.
//
// Tile numbers: group g has the numbers from floor(offsets[g] / height) + g on, as many as its rows need. These ranges
// are disjoint and ascending (ceil((b - a) / h) <= floor(b / h) - floor(a / h) + 1), so a block finds its group by
// binary search over the offsets alone, and no list of tiles has to be made. Of the numbers below TileBound some belong
// to nobody: their blocks end at once. An empty group owns no rows, hence no work. Tested by linear_device_test.cc.
#pragma once

#include <cstdint>

namespace tandem::kernels::cuda {

struct RowTile {
  int group = 0;
  int64_t begin = 0;  // rows [begin, end) of the rows in order of their group
  int64_t end = 0;    // begin: no work
};

// Numbers of tiles that the rows of num_groups groups may have.
inline int64_t TileBound(int64_t num_rows, int num_groups, int height) { return num_rows / height + num_groups; }

__device__ inline RowTile FindRowTile(const int32_t* offsets, int num_groups, int64_t tile, int height) {
  int low = 0, high = num_groups - 1;  // the last group whose numbers begin at or below tile
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (offsets[middle] / height + middle <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int64_t group_begin = offsets[low], group_end = offsets[low + 1];
  const int64_t begin = group_begin + (tile - (group_begin / height + low)) * height;
  if (begin >= group_end) return {.group = low, .begin = group_end, .end = group_end};
  return {.group = low, .begin = begin, .end = begin + height < group_end ? begin + height : group_end};
}

}  // namespace tandem::kernels::cuda

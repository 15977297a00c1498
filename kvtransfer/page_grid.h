// The (layer, logical page) cells of one epoch at decode: what was announced, what has landed, whose sums agree.
//
// Invariants: a cell is handed out for fetching once, and once more if its sum was wrong; it agrees only after it has
// landed and P's sums of both record kinds equal those of the bytes in place. O(1) per cell.
// Tested by page_grid_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::kvtransfer {

// Logical pages [page_begin, page_end) of layers [layer_begin, layer_end).
struct PageRect {
  int layer_begin = 0;
  int layer_end = 0;
  int page_begin = 0;
  int page_end = 0;
  bool operator==(const PageRect&) const = default;
};

// Consecutive logical pages of one layer that are fetched together, from one source rank.
struct PagePiece {
  int rank = 0;
  int layer = 0;
  int page_begin = 0;
  int page_end = 0;
  bool is_refetch = false;
  bool operator==(const PagePiece&) const = default;
};

// Bound sums of one cell.
struct CellSums {
  uint64_t latent = 0;
  uint64_t index = 0;
  bool operator==(const CellSums&) const = default;
};

enum class CellVerdict { kOpen, kAgrees, kWrongOnce, kWrongTwice };

class PageGrid final {
 public:
  // Wants pages [page_begin, page_end) of layers [0, num_layers); other cells are ignored.
  PageGrid(int num_layers, int page_begin, int page_end);

  // Cells that were not announced before, as pieces in order of layer.
  std::vector<PagePiece> Announce(int rank, const PageRect& rect);
  // The cell's bytes are in place and have these sums. kWrongOnce: to be fetched again.
  CellVerdict Landed(int layer, int page, int lane, const CellSums& sums);
  // P says what the sums must be. INTERNAL where it said otherwise before.
  absl::StatusOr<CellVerdict> Expect(int layer, int page, const CellSums& sums);

  // Every wanted cell agrees.
  bool IsComplete() const { return num_agreed_ == num_cells(); }
  int num_layers() const { return num_layers_; }
  int64_t num_cells() const { return static_cast<int64_t>(cells_.size()); }
  int64_t num_announced() const { return num_announced_; }
  int64_t num_landed() const { return num_landed_; }
  int rank(int layer, int page) const { return at(layer, page).rank; }
  int lane(int layer, int page) const { return at(layer, page).lane; }
  // The part of [page_begin, page_end) that is wanted; page_begin == page_end where none is.
  bool IsWanted(int page) const { return page >= page_begin_ && page < page_end_; }

  // Appends everything that tells this grid from another of the same shape.
  void AppendState(std::vector<uint64_t>& state) const;

 private:
  struct Cell {
    CellSums expected;
    CellSums actual;
    uint8_t rank = 0;
    uint8_t lane = 0;
    bool is_announced = false;
    bool has_landed = false;
    bool is_expected = false;
    bool was_wrong = false;
  };

  const Cell& at(int layer, int page) const;
  Cell& at(int layer, int page) { return const_cast<Cell&>(std::as_const(*this).at(layer, page)); }
  CellVerdict Judge(Cell& cell);

  int num_layers_;
  int page_begin_;
  int page_end_;
  int64_t num_announced_ = 0;
  int64_t num_landed_ = 0;
  int64_t num_agreed_ = 0;
  std::vector<Cell> cells_;  // [num_layers, page_end - page_begin]
};

}  // namespace tandem::kvtransfer

#include "kvtransfer/page_grid.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem::kvtransfer {

PageGrid::PageGrid(int num_layers, int page_begin, int page_end)
    : num_layers_(num_layers), page_begin_(page_begin), page_end_(page_end) {
  TANDEM_CHECK(num_layers > 0 && page_begin >= 0 && page_end >= page_begin, "empty or inverted grid");
  cells_.resize(static_cast<size_t>(num_layers) * (page_end - page_begin));
}

const PageGrid::Cell& PageGrid::at(int layer, int page) const {
  TANDEM_CHECK(layer >= 0 && layer < num_layers_ && IsWanted(page), "cell outside the grid");
  return cells_[static_cast<size_t>(layer) * (page_end_ - page_begin_) + (page - page_begin_)];
}

std::vector<PagePiece> PageGrid::Announce(int rank, const PageRect& rect) {
  std::vector<PagePiece> pieces;
  const int begin = std::max(rect.page_begin, page_begin_);
  const int end = std::min(rect.page_end, page_end_);
  for (int layer = rect.layer_begin; layer < rect.layer_end; ++layer) {
    bool extends = false;
    for (int page = begin; page < end; ++page) {
      Cell& cell = at(layer, page);
      if (cell.is_announced) {
        extends = false;
        continue;
      }
      cell.is_announced = true;
      cell.rank = static_cast<uint8_t>(rank);
      ++num_announced_;
      if (!extends) pieces.push_back({.rank = rank, .layer = layer, .page_begin = page, .page_end = page});
      ++pieces.back().page_end;
      extends = true;
    }
  }
  return pieces;
}

CellVerdict PageGrid::Landed(int layer, int page, int lane, const CellSums& sums) {
  Cell& cell = at(layer, page);
  TANDEM_CHECK(cell.is_announced && !cell.has_landed, "a cell landed that was not under way");
  cell.has_landed = true;
  cell.lane = static_cast<uint8_t>(lane);
  cell.actual = sums;
  ++num_landed_;
  return Judge(cell);
}

absl::StatusOr<CellVerdict> PageGrid::Expect(int layer, int page, const CellSums& sums) {
  Cell& cell = at(layer, page);
  if (cell.is_expected) {
    if (cell.expected == sums) return CellVerdict::kOpen;
    return absl::InternalError(absl::StrCat("prefill sent two different sums for layer ", layer, " page ", page));
  }
  cell.is_expected = true;
  cell.expected = sums;
  return Judge(cell);
}

CellVerdict PageGrid::Judge(Cell& cell) {
  if (!cell.has_landed || !cell.is_expected) return CellVerdict::kOpen;
  if (cell.actual == cell.expected) {
    ++num_agreed_;
    return CellVerdict::kAgrees;
  }
  if (cell.was_wrong) return CellVerdict::kWrongTwice;
  cell.was_wrong = true;
  cell.has_landed = false;
  --num_landed_;
  return CellVerdict::kWrongOnce;
}

void PageGrid::AppendState(std::vector<uint64_t>& state) const {
  for (const Cell& cell : cells_) {
    state.push_back(cell.is_announced | cell.has_landed << 1 | cell.is_expected << 2 | cell.was_wrong << 3 |
                    cell.rank << 8 | cell.lane << 16);
    if (cell.has_landed) state.insert(state.end(), {cell.actual.latent, cell.actual.index});
    if (cell.is_expected) state.insert(state.end(), {cell.expected.latent, cell.expected.index});
  }
}

}  // namespace tandem::kvtransfer

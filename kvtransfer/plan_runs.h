// From pages to bytes: which byte runs bring a rectangle of (layer, logical page) from a source's pool into the
// target's. Pure. Covers each (layer, page, record kind) exactly once and nothing else; neighbours that are contiguous
// on both sides are merged. Tested by plan_runs_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kvcache/kv_layout.h"
#include "kvtransfer/fetch_lane.h"

namespace tandem::kvtransfer {

struct PageRectangle {
  int layer_begin = 0;  // [layer_begin, layer_end): ids as in the layouts, equal on both sides
  int layer_end = 0;
  int64_t page_begin = 0;  // [page_begin, page_end): logical pages of the request
  int64_t page_end = 0;
};

struct PageMap {
  kvcache::KvLayout source;
  kvcache::KvLayout target;
  std::span<const uint32_t> source_pages;  // [num logical pages] page id in the source's pool
  std::span<const int32_t> target_pages;   // [num logical pages] page id in the target's pool
};

// In order of layer, kind, logical page. INVALID_ARGUMENT where the layouts are of other formats, the rectangle leaves
// a layout or the page lists, or a page id its pool: ids of the source come from a peer.
absl::StatusOr<std::vector<ByteRun>> PlanRuns(const PageRectangle& rectangle, const PageMap& map);

}  // namespace tandem::kvtransfer

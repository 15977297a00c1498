#include "kvtransfer/plan_runs.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::kvtransfer {
namespace {

absl::Status Validate(const PageRectangle& rectangle, const PageMap& map) {
  if (map.source.kv_cache_dtype != map.target.kv_cache_dtype) {
    return absl::InvalidArgumentError(absl::StrCat("a source of ", KvCacheDtypeName(map.source.kv_cache_dtype),
                                                   " records for a target of ",
                                                   KvCacheDtypeName(map.target.kv_cache_dtype), " records"));
  }
  const int num_layers = std::min(map.source.num_layers, map.target.num_layers);
  if (rectangle.layer_begin < 0 || rectangle.layer_begin > rectangle.layer_end || rectangle.layer_end > num_layers) {
    return absl::InvalidArgumentError(absl::StrCat("layers [", rectangle.layer_begin, ", ", rectangle.layer_end,
                                                   ") of pools with ", num_layers, " layers"));
  }
  const int64_t num_pages = std::min(map.source_pages.size(), map.target_pages.size());
  if (rectangle.page_begin < 0 || rectangle.page_begin > rectangle.page_end || rectangle.page_end > num_pages) {
    return absl::InvalidArgumentError(absl::StrCat("logical pages [", rectangle.page_begin, ", ", rectangle.page_end,
                                                   ") of a request with ", num_pages, " pages"));
  }
  for (int64_t page = rectangle.page_begin; page < rectangle.page_end; ++page) {
    const int64_t source_page = map.source_pages[page];
    const int64_t target_page = map.target_pages[page];
    if (source_page >= map.source.num_pages) {
      return absl::InvalidArgumentError(
          absl::StrCat("source page ", source_page, " of a pool of ", map.source.num_pages, " pages"));
    }
    if (target_page < 0 || target_page >= map.target.num_pages) {
      return absl::InvalidArgumentError(
          absl::StrCat("target page ", target_page, " of a pool of ", map.target.num_pages, " pages"));
    }
  }
  return absl::OkStatus();
}

bool Continues(const ByteRun& run, const ByteRun& next) {
  return run.source_offset + run.num_bytes == next.source_offset &&
         run.target_offset + run.num_bytes == next.target_offset;
}

}  // namespace

absl::StatusOr<std::vector<ByteRun>> PlanRuns(const PageRectangle& rectangle, const PageMap& map) {
  using kvcache::RecordKind;
  RETURN_IF_ERROR(Validate(rectangle, map));
  std::vector<ByteRun> runs;
  for (int layer = rectangle.layer_begin; layer < rectangle.layer_end; ++layer) {
    for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
      for (int64_t page = rectangle.page_begin; page < rectangle.page_end; ++page) {
        const ByteRun next = {
            .source_offset = static_cast<uint64_t>(map.source.PageOffset(kind, layer, map.source_pages[page])),
            .target_offset = static_cast<uint64_t>(map.target.PageOffset(kind, layer, map.target_pages[page])),
            .num_bytes = static_cast<uint64_t>(map.source.PageBytes(kind))};
        if (!runs.empty() && Continues(runs.back(), next)) {
          runs.back().num_bytes += next.num_bytes;
        } else {
          runs.push_back(next);
        }
      }
    }
  }
  return runs;
}

}  // namespace tandem::kvtransfer

#include "model/kv_mirror.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::model {

using kernels::Matrix;
using kvcache::RecordKind;

KvMirror::KvMirror(kernels::Backend& backend, const kvcache::KvLayout& layout, absl::Span<uint8_t> pool)
    : layout_(layout), pool_(pool), memory_(backend), for_ops_(pool.data()) {
  if (backend.is_host()) return;
  for_ops_ = memory_.Allocate<uint8_t>(layout.pool_bytes());
  // Copies of memory that is not pinned are right, too.
  is_pinned_ = backend.PinHostMemory({reinterpret_cast<std::byte*>(pool_.data()), pool_.size()}).ok();
}

KvMirror::~KvMirror() {
  if (is_pinned_) memory_.backend().UnpinHostMemory({reinterpret_cast<std::byte*>(pool_.data()), pool_.size()});
}

Matrix<uint8_t> KvMirror::LatentPages(int layer) const {
  return {for_ops_ + layout_.LatentOffset(layer, 0), {layout_.num_pages, layout_.PageBytes(RecordKind::kLatent)}};
}

Matrix<uint8_t> KvMirror::IndexPages(int layer) const {
  return {for_ops_ + layout_.IndexOffset(layer, 0), {layout_.num_pages, kvcache::kIndexPageBytes}};
}

// Joined to the one before where they touch: pages are mostly handed out in rows.
void KvMirror::Append(Run run, std::vector<Run>& runs) {
  if (!runs.empty() && runs.back().offset + runs.back().num_bytes == run.offset) {
    runs.back().num_bytes += run.num_bytes;
  } else {
    runs.push_back(run);
  }
}

absl::Status KvMirror::TakeOver(absl::Span<const int32_t> pages) {
  for (const int32_t page : pages) {
    if (page < 0 || page >= layout_.num_pages) {
      return absl::InvalidArgumentError(absl::StrCat("page ", page, " arrived, the pool has ", layout_.num_pages));
    }
  }
  if (is_host()) return absl::OkStatus();
  kernels::Backend& backend = memory_.backend();
  std::vector<Run> runs;
  for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
    for (const int32_t page : pages) Append({layout_.PageOffset(kind, 0, page), layout_.PageBytes(kind)}, runs);
  }
  for (int layer = 0; layer < layout_.num_layers; ++layer) {
    for (const Run& run : runs) {
      const int64_t offset = layer * layout_.layer_bytes() + run.offset;
      RETURN_IF_ERROR(backend.Upload({for_ops_ + offset, pool_.data() + offset, run.num_bytes}));
    }
  }
  return backend.Synchronize();
}

void KvMirror::NoteRows(const BatchPlan& plan) {
  if (is_host()) return;
  runs_.clear();
  index_runs_.clear();
  const int64_t record_bytes = kvcache::LatentRecordBytes(layout_.kv_cache_dtype);
  for (int row = 0; row < plan.num_rows(); ++row) {
    const int64_t page = plan.PageOf(row), slot = (plan.ContextOf(row) - 1) % kvcache::kPageTokens;
    const int64_t index_page = layout_.IndexOffset(0, page);
    Append({layout_.LatentOffset(0, page) + slot * record_bytes, record_bytes}, runs_);
    index_runs_.push_back({index_page + slot * kvcache::kIndexDim, kvcache::kIndexDim});
    index_runs_.push_back({index_page + kvcache::kIndexScaleOffset + slot * int64_t{sizeof(float)}, sizeof(float)});
  }
  // In order of their bytes, a whole index page is one run: its scales lie right behind its keys.
  std::sort(index_runs_.begin(), index_runs_.end(), [](const Run& a, const Run& b) { return a.offset < b.offset; });
  for (const Run& run : index_runs_) Append(run, runs_);
}

absl::StatusOr<int64_t> KvMirror::WriteBack(int layer) {
  copies_.clear();
  for (const Run& run : runs_) {
    const int64_t offset = layer * layout_.layer_bytes() + run.offset;
    copies_.push_back({pool_.data() + offset, for_ops_ + offset, run.num_bytes});
  }
  return memory_.backend().DownloadBeside(copies_);
}

}  // namespace tandem::model

#include "model/kv_mirror.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::model {

using kernels::Matrix;
using kvcache::RecordKind;

KvMirror::KvMirror(kernels::Backend& backend, const kvcache::KvLayout& layout, absl::Span<uint8_t> pool)
    : layout_(layout),
      mirror_layout_({.num_layers = layout.num_layers,
                      .num_pages = layout.num_pages + (backend.is_host() ? 0 : 1),
                      .kv_cache_dtype = layout.kv_cache_dtype}),
      pool_(pool),
      memory_(backend),
      for_ops_(pool.data()) {
  if (backend.is_host()) return;
  for_ops_ = memory_.Allocate<uint8_t>(mirror_layout_.pool_bytes());
  // Copies of memory that is not pinned are right, too.
  is_pinned_ = backend.PinHostMemory({reinterpret_cast<std::byte*>(pool_.data()), pool_.size()}).ok();
}

KvMirror::~KvMirror() {
  if (is_pinned_) memory_.backend().UnpinHostMemory({reinterpret_cast<std::byte*>(pool_.data()), pool_.size()});
}

Matrix<uint8_t> KvMirror::LatentPages(int layer) const {
  return {for_ops_ + mirror_layout_.LatentOffset(layer, 0),
          {mirror_layout_.num_pages, layout_.PageBytes(RecordKind::kLatent)}};
}

Matrix<uint8_t> KvMirror::IndexPages(int layer) const {
  return {for_ops_ + mirror_layout_.IndexOffset(layer, 0), {mirror_layout_.num_pages, kvcache::kIndexPageBytes}};
}

// Joined to the one before where they touch: pages are mostly handed out in rows.
void KvMirror::Append(const Run& run, std::vector<Run>& runs) {
  if (!runs.empty() && runs.back().offset + runs.back().num_bytes == run.offset &&
      runs.back().mirror_offset + runs.back().num_bytes == run.mirror_offset) {
    runs.back().num_bytes += run.num_bytes;
  } else {
    runs.push_back(run);
  }
}

kernels::MemoryCopy KvMirror::CopyOf(const Run& run, int layer, bool to_mirror) const {
  uint8_t* ours = for_ops_ + layer * mirror_layout_.layer_bytes() + run.mirror_offset;
  uint8_t* callers = pool_.data() + layer * layout_.layer_bytes() + run.offset;
  if (to_mirror) return {ours, callers, run.num_bytes};
  return {callers, ours, run.num_bytes};
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
    for (const int32_t page : pages) {
      Append({layout_.PageOffset(kind, 0, page), mirror_layout_.PageOffset(kind, 0, page), layout_.PageBytes(kind)},
             runs);
    }
  }
  for (int layer = 0; layer < layout_.num_layers; ++layer) {
    for (const Run& run : runs) RETURN_IF_ERROR(backend.Upload(CopyOf(run, layer, /*to_mirror=*/true)));
  }
  return backend.Synchronize();
}

void KvMirror::NoteRows(const BatchPlan& plan) {
  if (is_host()) return;
  runs_.clear();
  index_runs_.clear();
  const int64_t record_bytes = kvcache::LatentRecordBytes(layout_.kv_cache_dtype);
  for (int row = 0; row < plan.num_batch_rows(); ++row) {
    const int64_t page = plan.PageOf(row), slot = (plan.ContextOf(row) - 1) % kvcache::kPageTokens;
    const auto part_of = [&](RecordKind kind, int64_t begin, int64_t num_bytes) {
      return Run{layout_.PageOffset(kind, 0, page) + begin, mirror_layout_.PageOffset(kind, 0, page) + begin,
                 num_bytes};
    };
    Append(part_of(RecordKind::kLatent, slot * record_bytes, record_bytes), runs_);
    index_runs_.push_back(part_of(RecordKind::kIndex, slot * kvcache::kIndexDim, kvcache::kIndexDim));
    index_runs_.push_back(
        part_of(RecordKind::kIndex, kvcache::kIndexScaleOffset + slot * int64_t{sizeof(float)}, sizeof(float)));
  }
  // In order of their bytes, a whole index page is one run: its scales lie right behind its keys.
  std::sort(index_runs_.begin(), index_runs_.end(), [](const Run& a, const Run& b) { return a.offset < b.offset; });
  for (const Run& run : index_runs_) Append(run, runs_);
}

absl::StatusOr<int64_t> KvMirror::WriteBack(int layer) {
  copies_.clear();
  for (const Run& run : runs_) copies_.push_back(CopyOf(run, layer, /*to_mirror=*/false));
  return memory_.backend().DownloadBeside(copies_);
}

}  // namespace tandem::model

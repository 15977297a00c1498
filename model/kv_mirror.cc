#include "model/kv_mirror.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem::model {

using kernels::Matrix;
using kvcache::RecordKind;

KvMirror::KvMirror(kernels::Backend& backend, const kvcache::KvLayout& layout, absl::Span<uint8_t> pool,
                   int first_latent_layer)
    : layout_(layout), pool_(pool), memory_(backend) {
  if (backend.is_host()) return;
  const int64_t num_pages = layout.num_pages + 1;
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    latent_pages_.push_back(layer < first_latent_layer
                                ? nullptr
                                : memory_.Allocate<uint8_t>(num_pages * layout.PageBytes(RecordKind::kLatent)));
    index_pages_.push_back(memory_.Allocate<uint8_t>(num_pages * layout.PageBytes(RecordKind::kIndex)));
  }
  // Copies of memory that is not pinned are right, too.
  is_pinned_ = backend.PinHostMemory({reinterpret_cast<std::byte*>(pool_.data()), pool_.size()}).ok();
}

KvMirror::~KvMirror() {
  if (is_pinned_) memory_.backend().UnpinHostMemory({reinterpret_cast<std::byte*>(pool_.data()), pool_.size()});
}

Matrix<uint8_t> KvMirror::LatentPages(int layer) const {
  const int64_t page_bytes = layout_.PageBytes(RecordKind::kLatent);
  if (is_host()) return {pool_.data() + layout_.LatentOffset(layer, 0), {layout_.num_pages, page_bytes}};
  return {latent_pages_[layer], {layout_.num_pages + 1, page_bytes}};
}

Matrix<uint8_t> KvMirror::IndexPages(int layer) const {
  if (is_host()) return {pool_.data() + layout_.IndexOffset(layer, 0), {layout_.num_pages, kvcache::kIndexPageBytes}};
  return {index_pages_[layer], {layout_.num_pages + 1, kvcache::kIndexPageBytes}};
}

// Joined to the one before where they touch: pages are mostly handed out in rows.
void KvMirror::Append(const Run& run, std::vector<Run>& runs) {
  if (!runs.empty() && runs.back().kind == run.kind && runs.back().offset + runs.back().num_bytes == run.offset) {
    runs.back().num_bytes += run.num_bytes;
  } else {
    runs.push_back(run);
  }
}

void KvMirror::AppendCopy(const Run& run, int layer, bool to_mirror, std::vector<kernels::MemoryCopy>& copies) const {
  uint8_t* ours = run.kind == RecordKind::kLatent ? latent_pages_[layer] : index_pages_[layer];
  if (ours == nullptr) return;  // these latents are the caller's alone
  ours += run.offset;
  uint8_t* callers = pool_.data() + layout_.PageOffset(run.kind, layer, 0) + run.offset;
  copies.push_back(to_mirror ? kernels::MemoryCopy{ours, callers, run.num_bytes}
                             : kernels::MemoryCopy{callers, ours, run.num_bytes});
}

absl::Status KvMirror::NotePages(absl::Span<const int32_t> pages, bool to_mirror) {
  for (const int32_t page : pages) {
    if (page < 0 || page >= layout_.num_pages) {
      return absl::InvalidArgumentError(
          absl::StrCat("page ", page, to_mirror ? " arrived" : " is to leave", ", the pool has ", layout_.num_pages));
    }
  }
  copies_.clear();
  if (is_host()) return absl::OkStatus();
  std::vector<Run> runs;
  for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
    for (const int32_t page : pages) Append({kind, page * layout_.PageBytes(kind), layout_.PageBytes(kind)}, runs);
  }
  for (int layer = 0; layer < layout_.num_layers; ++layer) {
    for (const Run& run : runs) AppendCopy(run, layer, to_mirror, copies_);
  }
  return absl::OkStatus();
}

absl::Status KvMirror::TakeOver(absl::Span<const int32_t> pages) {
  RETURN_IF_ERROR(NotePages(pages, /*to_mirror=*/true));
  for (const kernels::MemoryCopy& copy : copies_) RETURN_IF_ERROR(memory_.backend().Upload(copy));
  return copies_.empty() ? absl::OkStatus() : memory_.backend().Synchronize();
}

absl::Status KvMirror::GiveBack(absl::Span<const int32_t> pages) {
  RETURN_IF_ERROR(NotePages(pages, /*to_mirror=*/false));
  for (const kernels::MemoryCopy& copy : copies_) RETURN_IF_ERROR(memory_.backend().Download(copy));
  return copies_.empty() ? absl::OkStatus() : memory_.backend().Synchronize();
}

void KvMirror::NoteRows(const BatchPlan& plan) {
  if (is_host()) return;
  runs_.clear();
  index_runs_.clear();
  const int64_t record_bytes = kvcache::LatentRecordBytes(layout_.kv_cache_dtype);
  for (int row = 0; row < plan.num_batch_rows(); ++row) {
    const int64_t page = plan.PageOf(row), slot = (plan.ContextOf(row) - 1) % kvcache::kPageTokens;
    const auto part_of = [&](RecordKind kind, int64_t begin, int64_t num_bytes) {
      return Run{kind, page * layout_.PageBytes(kind) + begin, num_bytes};
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
  for (const Run& run : runs_) AppendCopy(run, layer, /*to_mirror=*/false, copies_);
  return memory_.backend().DownloadBeside(copies_);
}

}  // namespace tandem::model

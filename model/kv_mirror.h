// The KV pool where ops find it: on the host the caller's pool itself, on a device a pool of the same pages beside it,
// and one page more that belongs to no sequence.
//
// The caller's pool stays what transfers read and write: records that ops wrote are copied into it layer by layer, and
// pages that came into it are copied to the device, both over the bus. Only written records leave, never the rest of
// their pages, so that nothing of a page's last tenant does. Device bytes behind a context are stale; no op reads them.
// With HiSparse the main layers' latents stay where the caller has them (device_buffers.h): the mirror has their index
// keys and all of the MTP layer.
// Tested by detached_memory_test.cc, and on a device by deepseek_model_device_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/backend_memory.h"
#include "kvcache/kv_layout.h"
#include "model/batch_plan.h"

namespace tandem::model {

class KvMirror final {
 public:
  // pool: of `layout`; it and the backend outlive this. Layers before first_latent_layer have no latents in the mirror.
  KvMirror(kernels::Backend& backend, const kvcache::KvLayout& layout, absl::Span<uint8_t> pool,
           int first_latent_layer = 0);
  ~KvMirror();
  KvMirror(const KvMirror&) = delete;
  KvMirror& operator=(const KvMirror&) = delete;

  // RESOURCE_EXHAUSTED where the device has no room for the pool.
  const absl::Status& status() const { return memory_.status(); }
  int64_t num_bytes() const { return memory_.num_bytes(); }

  // [pages, LatentPageBytes(kv_cache_dtype)]; null on a device for a layer without latents there.
  kernels::Matrix<uint8_t> LatentPages(int layer) const;
  kernels::Matrix<uint8_t> IndexPages(int layer) const;  // [pages, 8448]
  // The page of no sequence; not on the host.
  int32_t spare_page() const { return static_cast<int32_t>(layout_.num_pages); }

  // Brings pages of the caller's pool, all layers, to where ops find them, and waits for it.
  absl::Status TakeOver(absl::Span<const int32_t> pages);
  // The other way; latents that the mirror does not have are the caller's already.
  absl::Status GiveBack(absl::Span<const int32_t> pages);

  // Notes which records the rows of this batch write: what WriteBack copies.
  void NoteRows(const BatchPlan& plan);
  // Copies the noted records of one layer into the caller's pool: a ticket of Backend::DownloadBeside. To be called
  // when the ops that write them are enqueued.
  absl::StatusOr<int64_t> WriteBack(int layer);

 private:
  // Bytes of the pages of one kind, counted from page 0 of any layer.
  struct Run {
    kvcache::RecordKind kind = kvcache::RecordKind::kLatent;
    int64_t offset = 0;
    int64_t num_bytes = 0;
  };
  // All layers of these pages. INVALID_ARGUMENT where one is none of the pool's.
  absl::Status NotePages(absl::Span<const int32_t> pages, bool to_mirror);
  void AppendCopy(const Run& run, int layer, bool to_mirror, std::vector<kernels::MemoryCopy>& copies) const;
  bool is_host() const { return index_pages_.empty(); }
  static void Append(const Run& run, std::vector<Run>& runs);

  const kvcache::KvLayout layout_;
  const absl::Span<uint8_t> pool_;
  kernels::BackendMemory memory_;
  std::vector<uint8_t*> latent_pages_, index_pages_;  // of each layer, on a device
  bool is_pinned_ = false;
  std::vector<Run> runs_, index_runs_;  // of the noted rows
  std::vector<kernels::MemoryCopy> copies_;
};

}  // namespace tandem::model

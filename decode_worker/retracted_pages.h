// The KV of retracted sequences, on the host until they go on: a second pool of the engine's pages, beside the one that
// steps read and that transfers write.
//
// Where it has room for all pages of a sequence that is retracted, they are copied there, and copied back into other
// pages when the sequence is admitted again: nothing is prefilled, nothing computed a second time, and no prefill
// worker is needed. Where it has none the sequence is retracted as without it, and its tokens are computed again. So it
// is a saving and nobody waits for it; whose turn it is stays the scheduler's business. Knows pages and owners, nothing
// of sequences. Tested by retracted_pages_test.cc and engine_retraction_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kvcache/kv_pool.h"
#include "kvcache/page_allocator.h"

namespace tandem::decode {

class RetractedPages final {
 public:
  // kept: where they are kept, of the pool's layout but for the number of pages; none: nothing is kept.
  RetractedPages(const kvcache::KvPool& pool, const std::optional<kvcache::KvPool>& kept);

  // Copies of these pages, held by `owner`; empty where there is not room for all of them.
  std::vector<kvcache::PageId> Keep(absl::Span<const kvcache::PageId> pages, const std::string& owner);
  // kept[i] into pages[i] of the pool.
  void Restore(absl::Span<const kvcache::PageId> kept, absl::Span<const kvcache::PageId> pages);
  // Gives them back and clears the list; an empty list is nothing to do.
  void Drop(std::vector<kvcache::PageId>& kept, const std::string& owner);

  bool HasRoomFor(size_t num_pages) const { return static_cast<int64_t>(num_pages) <= allocator_.num_free(); }
  const kvcache::PageAllocator& pages() const { return allocator_; }
  // Since the start.
  int64_t bytes_kept() const { return num_pages_kept_ * page_bytes_; }
  int64_t bytes_restored() const { return num_pages_restored_ * page_bytes_; }

 private:
  const kvcache::KvPool pool_;
  const std::optional<kvcache::KvPool> kept_;
  kvcache::PageAllocator allocator_;
  const int64_t page_bytes_;  // of all layers
  int64_t num_pages_kept_ = 0, num_pages_restored_ = 0;
};

}  // namespace tandem::decode

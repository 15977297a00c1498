#include "decode_worker/retracted_pages.h"

#include <utility>

#include "base/check.h"

namespace tandem::decode {

RetractedPages::RetractedPages(const kvcache::KvPool& pool, const std::optional<kvcache::KvPool>& kept)
    : pool_(pool),
      kept_(kept),
      allocator_(kept.has_value() ? kept->layout().num_pages : 0),
      page_bytes_(pool.layout().num_layers * pool.layout().page_bytes()) {
  TANDEM_CHECK(!kept.has_value() || (kept->layout().num_layers == pool.layout().num_layers &&
                                     kept->layout().kv_cache_dtype == pool.layout().kv_cache_dtype),
               "pages are kept as they are");
}

std::vector<kvcache::PageId> RetractedPages::Keep(absl::Span<const kvcache::PageId> pages, const std::string& owner) {
  if (pages.empty() || !HasRoomFor(pages.size())) return {};
  auto kept = allocator_.Allocate(static_cast<int64_t>(pages.size()), owner);
  TANDEM_CHECK(kept.ok(), "there was room for them");
  for (size_t i = 0; i < pages.size(); ++i) pool_.CopyPageTo(pages[i], *kept_, (*kept)[i]);
  num_pages_kept_ += static_cast<int64_t>(pages.size());
  return *std::move(kept);
}

void RetractedPages::Restore(absl::Span<const kvcache::PageId> kept, absl::Span<const kvcache::PageId> pages) {
  TANDEM_CHECK(kept.size() == pages.size(), "each page has its own copy");
  for (size_t i = 0; i < pages.size(); ++i) kept_->CopyPageTo(kept[i], pool_, pages[i]);
  num_pages_restored_ += static_cast<int64_t>(pages.size());
}

void RetractedPages::Drop(std::vector<kvcache::PageId>& kept, const std::string& owner) {
  if (kept.empty()) return;
  allocator_.Release(kept, owner);
  kept.clear();
}

}  // namespace tandem::decode

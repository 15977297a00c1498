#include "kvcache/kv_pool.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem::kvcache {

absl::StatusOr<KvPool> KvPool::Over(std::span<std::byte> memory, const KvLayout& layout) {
  if (layout.num_layers < 1 || layout.num_pages < 1) {
    return absl::InvalidArgumentError(absl::StrCat("kv pool of ", layout.num_layers, " layers and ", layout.num_pages,
                                                   " pages: both must be at least 1"));
  }
  const size_t num_bytes = layout.pool_bytes();
  if (memory.size() < num_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("kv pool memory of ", memory.size(), " bytes, the layout needs ", num_bytes));
  }
  if (reinterpret_cast<uintptr_t>(memory.data()) % kPoolAlignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("kv pool memory at an address that is not a multiple of ", kPoolAlignment));
  }
  return KvPool(memory.first(num_bytes), layout);
}

std::span<std::byte> KvPool::Page(RecordKind kind, int layer, int64_t page) const {
  TANDEM_CHECK(layer >= 0 && layer < layout_.num_layers, absl::StrCat("layer ", layer, " of ", layout_.num_layers));
  TANDEM_CHECK(page >= 0 && page < layout_.num_pages, absl::StrCat("page ", page, " of ", layout_.num_pages));
  return bytes_.subspan(layout_.PageOffset(kind, layer, page), layout_.PageBytes(kind));
}

std::span<std::byte> KvPool::Pages(RecordKind kind, int layer) const {
  TANDEM_CHECK(layer >= 0 && layer < layout_.num_layers, absl::StrCat("layer ", layer, " of ", layout_.num_layers));
  return bytes_.subspan(layout_.PageOffset(kind, layer, 0), layout_.num_pages * layout_.PageBytes(kind));
}

void KvPool::ZeroPage(int64_t page) const {
  for (int layer = 0; layer < layout_.num_layers; ++layer) {
    for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
      std::ranges::fill(Page(kind, layer, page), std::byte{0});
    }
  }
}

void KvPool::CopyPage(int64_t source, int64_t target) const {
  if (source != target) CopyPageTo(source, *this, target);
}

void KvPool::CopyPageTo(int64_t source, const KvPool& other, int64_t target) const {
  for (int layer = 0; layer < layout_.num_layers; ++layer) {
    for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
      const std::span<std::byte> from = Page(kind, layer, source);
      std::copy(from.begin(), from.end(), other.Page(kind, layer, target).begin());
    }
  }
}

}  // namespace tandem::kvcache

// A view of memory that somebody else owns (a heap buffer, a UCX mapping) as one pool of KV pages.
// Trivially copyable; valid as long as the memory is. Tested by kv_pool_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "kvcache/kv_layout.h"

namespace tandem::kvcache {

inline constexpr size_t kPoolAlignment = 64;  // a cache line: records are read by SIMD loads

class KvPool final {
 public:
  // INVALID_ARGUMENT where the layout is empty, the memory is smaller than layout.pool_bytes() or not aligned to
  // kPoolAlignment. Larger memory is cut.
  static absl::StatusOr<KvPool> Over(std::span<std::byte> memory, const KvLayout& layout);

  const KvLayout& layout() const { return layout_; }
  std::span<std::byte> bytes() const { return bytes_; }

  // One page, layout().PageBytes(kind) bytes: [64] records. layer < num_layers, page < num_pages.
  std::span<std::byte> Page(RecordKind kind, int layer, int64_t page) const;
  // All pages of a layer, contiguous: [num_pages, layout().PageBytes(kind)] bytes.
  std::span<std::byte> Pages(RecordKind kind, int layer) const;
  // Zeroes a page of every layer, both kinds: a page is clean when it gets a new tenant.
  void ZeroPage(int64_t page) const;
  // Copies a page of every layer, both kinds, into another one.
  void CopyPage(int64_t source, int64_t target) const;
  // Into one of another pool, which has the same layers and format.
  void CopyPageTo(int64_t source, const KvPool& other, int64_t target) const;

 private:
  KvPool(std::span<std::byte> bytes, const KvLayout& layout) : bytes_(bytes), layout_(layout) {}

  std::span<std::byte> bytes_;
  KvLayout layout_;
};

}  // namespace tandem::kvcache

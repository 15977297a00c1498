// Aligned memory for one KV pool, for tests. Zero at the start.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "kvcache/kv_layout.h"
#include "kvcache/kv_pool.h"

namespace tandem::sim {

class PoolMemory final {
 public:
  explicit PoolMemory(const kvcache::KvLayout& layout)
      : layout_(layout), storage_(layout.pool_bytes() + kvcache::kPoolAlignment) {}

  std::span<std::byte> bytes() {
    void* base = storage_.data();
    size_t room = storage_.size();
    TANDEM_CHECK(std::align(kvcache::kPoolAlignment, layout_.pool_bytes(), base, room) != nullptr, "pool is too small");
    return {static_cast<std::byte*>(base), static_cast<size_t>(layout_.pool_bytes())};
  }
  kvcache::KvPool pool() {
    auto pool = kvcache::KvPool::Over(bytes(), layout_);
    TANDEM_CHECK(pool.ok(), "pool memory does not fit its layout");
    return *std::move(pool);
  }

 private:
  const kvcache::KvLayout layout_;
  std::vector<std::byte> storage_;
};

}  // namespace tandem::sim

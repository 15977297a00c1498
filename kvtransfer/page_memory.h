// What the transfer protocol does with the bytes of pages: sum them, and clear what lies behind a prompt's end.
//
// An interface, because pages may lie in host or in device memory, and so that the protocol's machines can be
// enumerated over pages of one word. Tested by page_memory_test.cc.
#pragma once

#include <cstdint>

#include "kvcache/kv_layout.h"
#include "kvcache/kv_pool.h"

namespace tandem::kvtransfer {

class PageMemory {
 public:
  virtual ~PageMemory() = default;
  // Content sum (kvcache/page_sum.h) of one pool page, bound to nothing yet.
  virtual uint64_t ContentSum(kvcache::RecordKind kind, int layer, int32_t page) const = 0;
  // Zeroes the records of tokens [first_token, kPageTokens) of both kinds of records of one pool page.
  virtual void ZeroTokensFrom(int layer, int32_t page, int first_token) = 0;
};

// Pages in memory that the CPU can touch.
class HostPageMemory final : public PageMemory {
 public:
  explicit HostPageMemory(const kvcache::KvPool& pool) : pool_(pool) {}
  uint64_t ContentSum(kvcache::RecordKind kind, int layer, int32_t page) const override;
  void ZeroTokensFrom(int layer, int32_t page, int first_token) override;

 private:
  kvcache::KvPool pool_;
};

}  // namespace tandem::kvtransfer

// Pages whose content sums are made once: a page that many requests read is summed for the first of them.
//
// Whoever asks for a sum says with it that the page will not change until Forget(): TransferSource::Complete asks for
// nothing else. Forgotten are pages that get a new tenant. Tested by remembered_sums_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvcache/kv_layout.h"
#include "kvtransfer/page_memory.h"

namespace tandem::kvtransfer {

class RememberedSums final : public PageMemory {
 public:
  // `memory`, whose pages have this layout, outlives this.
  RememberedSums(PageMemory& memory, const kvcache::KvLayout& layout);

  uint64_t ContentSum(kvcache::RecordKind kind, int layer, int32_t page) const override;
  void ZeroTokensFrom(int layer, int32_t page, int first_token) override;
  void Forget(std::span<const int32_t> pages);

 private:
  struct Sum {
    uint64_t value = 0;
    bool is_known = false;
  };
  size_t CellOf(kvcache::RecordKind kind, int layer, int32_t page) const {
    return (static_cast<size_t>(page) * num_layers_ + layer) * 2 + static_cast<size_t>(kind);
  }

  PageMemory& memory_;
  const int num_layers_;
  mutable std::vector<Sum> sums_;  // [page][layer][kind]
};

}  // namespace tandem::kvtransfer

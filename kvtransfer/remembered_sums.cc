#include "kvtransfer/remembered_sums.h"

#include <algorithm>

namespace tandem::kvtransfer {

RememberedSums::RememberedSums(PageMemory& memory, const kvcache::KvLayout& layout)
    : memory_(memory), num_layers_(layout.num_layers), sums_(static_cast<size_t>(layout.num_pages) * num_layers_ * 2) {}

uint64_t RememberedSums::ContentSum(kvcache::RecordKind kind, int layer, int32_t page) const {
  Sum& sum = sums_[CellOf(kind, layer, page)];
  if (!sum.is_known) sum = {.value = memory_.ContentSum(kind, layer, page), .is_known = true};
  return sum.value;
}

void RememberedSums::ZeroTokensFrom(int layer, int32_t page, int first_token) {
  for (const kvcache::RecordKind kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) {
    sums_[CellOf(kind, layer, page)].is_known = false;
  }
  memory_.ZeroTokensFrom(layer, page, first_token);
}

void RememberedSums::Forget(std::span<const int32_t> pages) {
  for (const int32_t page : pages) {
    const auto begin = sums_.begin() + static_cast<ptrdiff_t>(CellOf(kvcache::RecordKind::kLatent, 0, page));
    std::fill(begin, begin + static_cast<ptrdiff_t>(num_layers_) * 2, Sum());
  }
}

}  // namespace tandem::kvtransfer

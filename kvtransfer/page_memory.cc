#include "kvtransfer/page_memory.h"

#include "kvcache/page_bytes.h"
#include "kvcache/page_sum.h"

namespace tandem::kvtransfer {

uint64_t HostPageMemory::ContentSum(kvcache::RecordKind kind, int layer, int32_t page) const {
  return kvcache::ContentSum(pool_.Page(kind, layer, page));
}

void HostPageMemory::ZeroTokensFrom(int layer, int32_t page, int first_token) {
  for (const kvcache::RecordKind kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) {
    kvcache::ZeroTokensFrom(pool_.Page(kind, layer, page), kind, pool_.layout().kv_cache_dtype, first_token);
  }
}

}  // namespace tandem::kvtransfer

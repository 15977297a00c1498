#include "kvcache/page_bytes.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::kvcache {

void ZeroTokensFrom(std::span<std::byte> page, RecordKind kind, KvCacheDtype dtype, int first_token) {
  TANDEM_CHECK(static_cast<int64_t>(page.size()) == PageBytes(kind, dtype), "not one page of this kind");
  TANDEM_CHECK(first_token >= 0 && first_token <= kPageTokens, "token outside the page");
  const auto zero = [page](size_t begin, size_t end) {
    std::fill(page.begin() + begin, page.begin() + end, std::byte{0});
  };
  if (kind == RecordKind::kLatent) {
    zero(first_token * LatentRecordBytes(dtype), page.size());
  } else {
    zero(first_token * kIndexDim, kIndexScaleOffset);
    zero(kIndexScaleOffset + first_token * sizeof(float), page.size());
  }
}

}  // namespace tandem::kvcache

// Proves: clearing from a token on clears exactly the records of the later tokens, for every first token.
#include "kvcache/page_bytes.h"

#include <vector>

#include "gtest/gtest.h"

namespace tandem::kvcache {
namespace {

// Which token owns a byte, counted out from the layout's prose.
int OwnerOfByte(RecordKind kind, KvCacheDtype dtype, size_t offset) {
  if (kind == RecordKind::kLatent) return static_cast<int>(offset / (dtype == KvCacheDtype::kFp8E4m3 ? 656 : 1152));
  return static_cast<int>(offset < 64 * 128 ? offset / 128 : (offset - 64 * 128) / 4);
}

TEST(PageBytesTest, ClearsTheLaterTokensAndNothingElse) {
  for (const KvCacheDtype dtype : {KvCacheDtype::kFp8E4m3, KvCacheDtype::kBfloat16}) {
    for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
      for (int first_token = 0; first_token <= 64; ++first_token) {
        std::vector<std::byte> page(PageBytes(kind, dtype), std::byte{0xa5});
        ZeroTokensFrom(page, kind, dtype, first_token);
        for (size_t i = 0; i < page.size(); ++i) {
          ASSERT_EQ(page[i], OwnerOfByte(kind, dtype, i) >= first_token ? std::byte{0} : std::byte{0xa5})
              << KvCacheDtypeName(dtype) << " byte " << i << " first token " << first_token;
        }
      }
    }
  }
}

TEST(PageBytesDeathTest, RefusesASpanThatIsNotAPage) {
  std::vector<std::byte> page(LatentPageBytes(KvCacheDtype::kFp8E4m3));
  EXPECT_DEATH(ZeroTokensFrom(page, RecordKind::kIndex, KvCacheDtype::kFp8E4m3, 0), "not one page");
  EXPECT_DEATH(ZeroTokensFrom(page, RecordKind::kLatent, KvCacheDtype::kBfloat16, 0), "not one page");
}

}  // namespace
}  // namespace tandem::kvcache

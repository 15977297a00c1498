// Proves: clearing from a token on clears exactly the records of the later tokens, for every first token.
#include "kvcache/page_bytes.h"

#include <vector>

#include "gtest/gtest.h"

namespace tandem::kvcache {
namespace {

// Which token owns a byte, counted out from the layout's prose.
int OwnerOfByte(RecordKind kind, size_t offset) {
  if (kind == RecordKind::kLatent) return static_cast<int>(offset / 656);
  return static_cast<int>(offset < 64 * 128 ? offset / 128 : (offset - 64 * 128) / 4);
}

TEST(PageBytesTest, ClearsTheLaterTokensAndNothingElse) {
  for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
    for (int first_token = 0; first_token <= 64; ++first_token) {
      std::vector<std::byte> page(PageBytes(kind), std::byte{0xa5});
      ZeroTokensFrom(page, kind, first_token);
      for (size_t i = 0; i < page.size(); ++i) {
        ASSERT_EQ(page[i], OwnerOfByte(kind, i) >= first_token ? std::byte{0} : std::byte{0xa5})
            << "byte " << i << " first token " << first_token;
      }
    }
  }
}

TEST(PageBytesDeathTest, RefusesASpanThatIsNotAPage) {
  std::vector<std::byte> page(kLatentPageBytes);
  EXPECT_DEATH(ZeroTokensFrom(page, RecordKind::kIndex, 0), "not one page");
}

}  // namespace
}  // namespace tandem::kvcache

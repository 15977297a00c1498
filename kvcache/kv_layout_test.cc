// Proves: the records of a pool tile it without gap or overlap, and the sizes are those of the published formats.
#include "kvcache/kv_layout.h"

#include <vector>

#include "gtest/gtest.h"

namespace tandem::kvcache {
namespace {

TEST(KvLayoutTest, HasTheSizesOfThePublishedRecords) {
  EXPECT_EQ(kLatentRecordBytes, 512 + 4 * 4 + 64 * 2);
  EXPECT_EQ(kLatentScaleOffset, 512);
  EXPECT_EQ(kLatentRopeOffset, 528);
  EXPECT_EQ(kIndexRecordBytes, 132);
  EXPECT_EQ(kIndexScaleOffset, 8192);
  EXPECT_EQ(PageBytes(RecordKind::kLatent), 41984);
  EXPECT_EQ(PageBytes(RecordKind::kIndex), 8448);
  // 61 layers and the MTP layer: 48.9 KB per token.
  const KvLayout layout = {.num_layers = 62, .num_pages = 1};
  EXPECT_EQ(layout.pool_bytes() / 64, 62 * (656 + 132));
}

TEST(KvLayoutTest, TilesThePoolExactly) {
  const KvLayout layout = {.num_layers = 3, .num_pages = 5};
  std::vector<int> uses(layout.pool_bytes());
  for (int layer = 0; layer < layout.num_layers; ++layer) {
    for (int64_t page = 0; page < layout.num_pages; ++page) {
      for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
        const int64_t offset = layout.PageOffset(kind, layer, page);
        for (int64_t i = 0; i < PageBytes(kind); ++i) ++uses.at(offset + i);
      }
    }
  }
  for (const int use : uses) ASSERT_EQ(use, 1);
}

TEST(KvLayoutTest, KeepsPagesOfOneLayerAndKindContiguous) {
  const KvLayout layout = {.num_layers = 62, .num_pages = 100'000};  // 313 GB: offsets need 64 bits
  for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
    for (int64_t page = 1; page < layout.num_pages; ++page) {
      ASSERT_EQ(layout.PageOffset(kind, 61, page), layout.PageOffset(kind, 61, page - 1) + PageBytes(kind));
    }
  }
  EXPECT_EQ(layout.IndexOffset(61, layout.num_pages - 1) + kIndexPageBytes, layout.pool_bytes());
}

TEST(KvLayoutTest, CountsPagesOfTokens) {
  EXPECT_EQ(PagesForTokens(0), 0);
  EXPECT_EQ(PagesForTokens(1), 1);
  EXPECT_EQ(PagesForTokens(64), 1);
  EXPECT_EQ(PagesForTokens(65), 2);
  EXPECT_EQ(PagesForTokens(163'840), 2560);
}

}  // namespace
}  // namespace tandem::kvcache

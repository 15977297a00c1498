// Proves: the records of a pool tile it without gap or overlap, and the sizes are those of the published formats.
#include "kvcache/kv_layout.h"

#include <vector>

#include "gtest/gtest.h"

namespace tandem::kvcache {
namespace {

constexpr KvCacheDtype kDtypes[] = {KvCacheDtype::kFp8E4m3, KvCacheDtype::kBfloat16};

TEST(KvLayoutTest, HasTheSizesOfThePublishedRecords) {
  EXPECT_EQ(LatentRecordBytes(KvCacheDtype::kFp8E4m3), 512 + 4 * 4 + 64 * 2);
  EXPECT_EQ(kLatentScaleOffset, 512);
  EXPECT_EQ(LatentRopeOffset(KvCacheDtype::kFp8E4m3), 528);
  EXPECT_EQ(LatentRecordBytes(KvCacheDtype::kBfloat16), 1152);
  EXPECT_EQ(LatentRopeOffset(KvCacheDtype::kBfloat16), 1024);
  EXPECT_EQ(kIndexRecordBytes, 132);
  EXPECT_EQ(kIndexScaleOffset, 8192);
  // 61 layers and the MTP layer: 48.9 KB per token, 79.6 KB with BF16 latents.
  KvLayout layout = {.num_layers = 62, .num_pages = 1};
  EXPECT_EQ(layout.pool_bytes() / 64, 48'856);
  EXPECT_EQ(layout.PageBytes(RecordKind::kLatent), 41984);
  EXPECT_EQ(layout.PageBytes(RecordKind::kIndex), 8448);
  layout.kv_cache_dtype = KvCacheDtype::kBfloat16;
  EXPECT_EQ(layout.pool_bytes() / 64, 79'608);
  EXPECT_EQ(layout.PageBytes(RecordKind::kLatent), 73728);
  EXPECT_EQ(layout.PageBytes(RecordKind::kIndex), 8448);
}

TEST(KvLayoutTest, NamesItsFormats) {
  for (const KvCacheDtype dtype : kDtypes) EXPECT_EQ(KvCacheDtypeOf(KvCacheDtypeName(dtype)), dtype);
  EXPECT_EQ(KvCacheDtypeName(KvCacheDtype::kFp8E4m3), "fp8_e4m3");
  EXPECT_EQ(KvCacheDtypeName(KvCacheDtype::kBfloat16), "bfloat16");
  EXPECT_EQ(KvCacheDtypeOf("float16"), std::nullopt);
  EXPECT_EQ(KvCacheDtypeOf(""), std::nullopt);
}

TEST(KvLayoutTest, TilesThePoolExactly) {
  for (const KvCacheDtype dtype : kDtypes) {
    const KvLayout layout = {.num_layers = 3, .num_pages = 5, .kv_cache_dtype = dtype};
    std::vector<int> uses(layout.pool_bytes());
    for (int layer = 0; layer < layout.num_layers; ++layer) {
      for (int64_t page = 0; page < layout.num_pages; ++page) {
        for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
          const int64_t offset = layout.PageOffset(kind, layer, page);
          for (int64_t i = 0; i < layout.PageBytes(kind); ++i) ++uses.at(offset + i);
        }
      }
    }
    for (const int use : uses) ASSERT_EQ(use, 1);
  }
}

TEST(KvLayoutTest, KeepsPagesOfOneLayerAndKindContiguous) {
  for (const KvCacheDtype dtype : kDtypes) {
    // 313 GB and 510 GB: offsets need 64 bits.
    const KvLayout layout = {.num_layers = 62, .num_pages = 100'000, .kv_cache_dtype = dtype};
    for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
      for (int64_t page = 1; page < layout.num_pages; ++page) {
        ASSERT_EQ(layout.PageOffset(kind, 61, page), layout.PageOffset(kind, 61, page - 1) + layout.PageBytes(kind));
      }
    }
    EXPECT_EQ(layout.IndexOffset(61, layout.num_pages - 1) + kIndexPageBytes, layout.pool_bytes());
  }
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

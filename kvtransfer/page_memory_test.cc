#include "kvtransfer/page_memory.h"

#include "gtest/gtest.h"
#include "kvcache/page_sum.h"
#include "kvtransfer/transfer_rig.h"

namespace tandem::kvtransfer {
namespace {

TEST(PageMemoryTest, SumsExactlyOnePageOfOneKind) {
  const RigPool pool({.num_layers = 2, .num_pages = 3});
  const HostPageMemory memory(pool.pool());
  const std::span<std::byte> page = pool.pool().Page(kvcache::RecordKind::kIndex, 1, 2);
  const uint64_t before = memory.ContentSum(kvcache::RecordKind::kIndex, 1, 2);
  EXPECT_EQ(before, kvcache::ContentSum(page));
  page.front() ^= std::byte{1};
  EXPECT_NE(memory.ContentSum(kvcache::RecordKind::kIndex, 1, 2), before);
  EXPECT_EQ(memory.ContentSum(kvcache::RecordKind::kIndex, 1, 1), before);  // equal bytes elsewhere
  EXPECT_EQ(memory.ContentSum(kvcache::RecordKind::kIndex, 0, 2), before);
}

TEST(PageMemoryTest, ZeroesBothKindsOfRecordsFromTheTokenOn) {
  const RigPool pool({.num_layers = 2, .num_pages = 3});
  HostPageMemory memory(pool.pool());
  memory.ZeroTokensFrom(1, 2, 10);
  const std::span<std::byte> latent = pool.pool().Page(kvcache::RecordKind::kLatent, 1, 2);
  EXPECT_NE(latent[10 * kvcache::LatentRecordBytes(kvcache::KvCacheDtype::kFp8E4m3) - 1], std::byte{0});
  EXPECT_EQ(latent[10 * kvcache::LatentRecordBytes(kvcache::KvCacheDtype::kFp8E4m3)], std::byte{0});
  EXPECT_EQ(latent.back(), std::byte{0});
  const std::span<std::byte> index = pool.pool().Page(kvcache::RecordKind::kIndex, 1, 2);
  EXPECT_NE(index[10 * kvcache::kIndexDim - 1], std::byte{0});
  EXPECT_EQ(index[10 * kvcache::kIndexDim], std::byte{0});
  EXPECT_NE(pool.pool().Page(kvcache::RecordKind::kLatent, 1, 1).back(), std::byte{0});
  EXPECT_NE(pool.pool().Page(kvcache::RecordKind::kLatent, 0, 2).back(), std::byte{0});
}

}  // namespace
}  // namespace tandem::kvtransfer

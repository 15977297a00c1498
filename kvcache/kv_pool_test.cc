// Proves: the view hands out exactly the layout's bytes and refuses memory that does not fit.
#include "kvcache/kv_pool.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::kvcache {
namespace {

constexpr KvLayout kLayout = {.num_layers = 2, .num_pages = 3};

class KvPoolTest : public testing::Test {
 protected:
  struct alignas(kPoolAlignment) Line {
    std::byte bytes[kPoolAlignment];
  };
  std::span<std::byte> memory() {
    return {lines_[0].bytes, static_cast<size_t>(kLayout.pool_bytes()) + kPoolAlignment};
  }
  std::unique_ptr<Line[]> lines_ = std::make_unique<Line[]>(kLayout.pool_bytes() / kPoolAlignment + 2);
};

TEST_F(KvPoolTest, HandsOutTheLayoutsBytes) {
  const absl::StatusOr<KvPool> pool = KvPool::Over(memory(), kLayout);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(static_cast<int64_t>(pool->bytes().size()), kLayout.pool_bytes());
  for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
    const std::span<std::byte> page = pool->Page(kind, 1, 2);
    EXPECT_EQ(page.data() - memory().data(), kLayout.PageOffset(kind, 1, 2));
    EXPECT_EQ(static_cast<int64_t>(page.size()), kLayout.PageBytes(kind));
    const std::span<std::byte> pages = pool->Pages(kind, 1);
    EXPECT_EQ(pages.data(), pool->Page(kind, 1, 0).data());
    EXPECT_EQ(pages.data() + pages.size(), page.data() + page.size());
  }
}

TEST_F(KvPoolTest, ZeroesAPageInEveryLayerAndNoOther) {
  const KvPool pool = *KvPool::Over(memory(), kLayout);
  std::fill(pool.bytes().begin(), pool.bytes().end(), std::byte{0x5a});
  pool.ZeroPage(1);
  for (int layer = 0; layer < kLayout.num_layers; ++layer) {
    for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
      for (int64_t page = 0; page < kLayout.num_pages; ++page) {
        const std::byte expected = page == 1 ? std::byte{0} : std::byte{0x5a};
        const std::span<std::byte> bytes = pool.Page(kind, layer, page);
        EXPECT_EQ(std::count(bytes.begin(), bytes.end(), expected), kLayout.PageBytes(kind));
      }
    }
  }
}

TEST_F(KvPoolTest, CopiesAPageInEveryLayerAndNoOther) {
  const KvPool pool = *KvPool::Over(memory(), kLayout);
  for (int layer = 0; layer < kLayout.num_layers; ++layer) {
    for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
      for (int64_t page = 0; page < kLayout.num_pages; ++page) {
        const std::span<std::byte> bytes = pool.Page(kind, layer, page);
        for (size_t i = 0; i < bytes.size(); ++i) {
          bytes[i] = static_cast<std::byte>(i * 7 + page * 31 + layer * 5 + static_cast<int>(kind));
        }
      }
    }
  }
  const std::vector<std::byte> before(pool.bytes().begin(), pool.bytes().end());
  pool.CopyPage(0, 2);
  pool.CopyPage(1, 1);
  for (int layer = 0; layer < kLayout.num_layers; ++layer) {
    for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
      for (int64_t page = 0; page < kLayout.num_pages; ++page) {
        const std::byte* expected = before.data() + kLayout.PageOffset(kind, layer, page == 2 ? 0 : page);
        const std::span<std::byte> bytes = pool.Page(kind, layer, page);
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected)) << "layer " << layer << " page " << page;
      }
    }
  }
}

TEST_F(KvPoolTest, RefusesMemoryThatDoesNotFit) {
  EXPECT_EQ(KvPool::Over(memory().first(kLayout.pool_bytes() - 1), kLayout).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(KvPool::Over(memory().subspan(1), kLayout).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(KvPool::Over(memory(), {.num_layers = 0, .num_pages = 3}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::kvcache

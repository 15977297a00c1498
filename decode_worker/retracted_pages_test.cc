// Proves that pages come back byte for byte whatever their old places have become, and that copies are all or none.
#include "decode_worker/retracted_pages.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/sim/pool_memory.h"

namespace tandem::decode {
namespace {

using kvcache::PageId;
using kvcache::RecordKind;

constexpr kvcache::KvLayout kLayout{.num_layers = 3, .num_pages = 8};
constexpr int kNumKept = 5;

class RetractedPagesTest : public ::testing::Test {
 protected:
  RetractedPagesTest()
      : memory_(kLayout),
        kept_memory_({.num_layers = 3, .num_pages = kNumKept}),
        kept_(memory_.pool(), kept_memory_.pool()) {}
  // Every byte of the page follows from `seed`.
  void Fill(PageId page, uint32_t seed) {
    std::mt19937 rng(seed);
    for (int layer = 0; layer < kLayout.num_layers; ++layer) {
      for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
        for (std::byte& byte : memory_.pool().Page(kind, layer, page)) byte = static_cast<std::byte>(rng());
      }
    }
  }
  bool IsFilled(PageId page, uint32_t seed) {
    std::mt19937 rng(seed);
    bool is_equal = true;
    for (int layer = 0; layer < kLayout.num_layers; ++layer) {
      for (const RecordKind kind : {RecordKind::kLatent, RecordKind::kIndex}) {
        for (const std::byte byte : memory_.pool().Page(kind, layer, page)) {
          is_equal = is_equal && byte == static_cast<std::byte>(rng());
        }
      }
    }
    return is_equal;
  }
  sim::PoolMemory memory_, kept_memory_;
  RetractedPages kept_;
};

TEST_F(RetractedPagesTest, AllComeBackOrNoneIsKept) {
  for (PageId page = 0; page < 8; ++page) Fill(page, page);
  std::vector<PageId> first = kept_.Keep({6, 2, 7}, "a");
  ASSERT_EQ(first.size(), 3u);
  EXPECT_THAT(kept_.Keep({0, 1, 3}, "b"), ::testing::IsEmpty()) << "there is room for two";
  std::vector<PageId> second = kept_.Keep({0, 1}, "b");
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(kept_.pages().num_free(), 0);
  for (PageId page = 0; page < 8; ++page) Fill(page, 99);
  kept_.Restore(first, {0, 1, 2});
  kept_.Restore(second, {7, 3});
  EXPECT_TRUE(IsFilled(0, 6) && IsFilled(1, 2) && IsFilled(2, 7) && IsFilled(7, 0) && IsFilled(3, 1));
  EXPECT_TRUE(IsFilled(4, 99)) << "nobody else's page was touched";
  kept_.Drop(first, "a");
  EXPECT_THAT(first, ::testing::IsEmpty());
  EXPECT_EQ(kept_.pages().num_free(), 3);
  EXPECT_EQ(kept_.bytes_kept(), 5 * 3 * kLayout.page_bytes());
  EXPECT_EQ(kept_.bytes_restored(), 5 * 3 * kLayout.page_bytes());
}

TEST_F(RetractedPagesTest, WithoutAPoolNothingIsKept) {
  RetractedPages none(memory_.pool(), std::nullopt);
  EXPECT_THAT(none.Keep({1}, "a"), ::testing::IsEmpty());
  std::vector<PageId> nothing;
  none.Drop(nothing, "a");
  EXPECT_EQ(none.pages().num_pages(), 0);
}

// Owners come and go by chance; whatever is kept is what was there when it was kept, and no page of the pool of copies
// is lost.
TEST_F(RetractedPagesTest, RandomComingsAndGoingsLoseNoByteAndNoPage) {
  struct Kept {
    std::vector<PageId> pages;
    std::vector<uint32_t> seeds;
  };
  std::mt19937 rng(9);
  std::map<int, Kept> held;
  int64_t num_held = 0;
  for (int round = 0; round < 300; ++round) {
    const int owner = static_cast<int>(rng() % 4);
    const std::string name = absl::StrCat("owner ", owner);
    if (held.contains(owner)) {
      Kept& kept = held.at(owner);
      std::vector<PageId> targets;
      for (size_t i = 0; i < kept.pages.size(); ++i) targets.push_back(static_cast<PageId>(7 - i));
      kept_.Restore(kept.pages, targets);
      for (size_t i = 0; i < targets.size(); ++i) ASSERT_TRUE(IsFilled(targets[i], kept.seeds[i])) << "round " << round;
      num_held -= static_cast<int64_t>(kept.pages.size());
      kept_.Drop(kept.pages, name);
      held.erase(owner);
    } else {
      Kept kept;
      std::vector<PageId> sources;
      for (size_t i = 0; i < 1 + rng() % 4; ++i) {
        sources.push_back(static_cast<PageId>(i));
        kept.seeds.push_back(static_cast<uint32_t>(rng()));
        Fill(sources.back(), kept.seeds.back());
      }
      kept.pages = kept_.Keep(sources, name);
      ASSERT_EQ(!kept.pages.empty(), num_held + static_cast<int64_t>(sources.size()) <= kNumKept);
      num_held += static_cast<int64_t>(kept.pages.size());
      if (!kept.pages.empty()) held.emplace(owner, std::move(kept));
    }
    ASSERT_EQ(kept_.pages().num_used(), num_held);
  }
}

}  // namespace
}  // namespace tandem::decode

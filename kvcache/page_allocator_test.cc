// Proves: pages are conserved under any sequence of operations (against a plain model), allocation is all or nothing,
// a freed page has a new generation, and misuse stops the process.
#include "kvcache/page_allocator.h"

#include <map>
#include <random>
#include <set>

#include "gtest/gtest.h"

namespace tandem::kvcache {
namespace {

TEST(PageAllocatorTest, GivesAllPagesOrNone) {
  PageAllocator allocator(8);
  ASSERT_TRUE(allocator.Allocate(5, "a").ok());
  const absl::Status refused = allocator.Allocate(4, "b").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(), "kv pool: 4 pages wanted by b, 3 of 8 are free");
  EXPECT_EQ(allocator.num_free(), 3);
  EXPECT_TRUE(allocator.PagesOf("b").empty());
  EXPECT_TRUE(allocator.Allocate(3, "b").ok());
  EXPECT_EQ(allocator.num_free(), 0);
  EXPECT_TRUE(allocator.Allocate(0, "c").ok());
}

TEST(PageAllocatorTest, FreesAPageWithItsLastHold) {
  PageAllocator allocator(4);
  const std::vector<PageId> pages = *allocator.Allocate(2, "sequence");
  allocator.Hold(pages, "fetches");
  allocator.Hold(std::vector<PageId>{pages[0]}, "fetches");
  EXPECT_EQ(allocator.Release(pages, "sequence"), 0);
  EXPECT_EQ(allocator.Release(pages, "fetches"), 1);
  EXPECT_EQ(allocator.num_used(), 1);
  EXPECT_EQ(allocator.num_holds(pages[0]), 1);
  EXPECT_EQ(allocator.ReleaseAll("fetches"), 1);
  EXPECT_EQ(allocator.num_used(), 0);
  EXPECT_EQ(allocator.ReleaseAll("fetches"), 0);
}

TEST(PageAllocatorTest, GivesAFreedPageANewGeneration) {
  PageAllocator allocator(1);
  const PageId page = (*allocator.Allocate(1, "a"))[0];
  const uint64_t first = allocator.generation(page);
  allocator.Hold(std::vector<PageId>{page}, "b");
  allocator.ReleaseAll("a");
  EXPECT_EQ(allocator.generation(page), first);  // still the same tenant's bytes
  allocator.ReleaseAll("b");
  EXPECT_EQ(allocator.generation(page), first + 1);
  ASSERT_TRUE(allocator.Allocate(1, "c").ok());
  EXPECT_EQ(allocator.generation(page), first + 1);
}

TEST(PageAllocatorTest, ACachedPageOutlivesItsHolds) {
  PageAllocator allocator(4);
  const std::vector<PageId> pages = *allocator.Allocate(2, "a");
  allocator.Cache(pages[0]);
  EXPECT_EQ(allocator.ReleaseAll("a"), 1) << "the other one";
  EXPECT_EQ(allocator.num_idle(), 1);
  EXPECT_EQ(allocator.num_used(), 0);
  EXPECT_EQ(allocator.num_free(), 3);
  EXPECT_FALSE(allocator.Allocate(4, "b").ok());
  const uint64_t generation = allocator.generation(pages[0]);
  allocator.Hold(std::vector<PageId>{pages[0]}, "c");
  EXPECT_EQ(allocator.num_idle(), 0);
  EXPECT_EQ(allocator.num_holds_of(pages[0], "c"), 1);
  EXPECT_EQ(allocator.num_holds_of(pages[0], "a"), 0);
  EXPECT_FALSE(allocator.Uncache(pages[0])) << "c holds it";
  EXPECT_EQ(allocator.generation(pages[0]), generation);
  EXPECT_EQ(allocator.ReleaseAll("c"), 1);
  EXPECT_EQ(allocator.num_free(), 4);
  EXPECT_EQ(allocator.generation(pages[0]), generation + 1);
}

TEST(PageAllocatorTest, SaysWhoHoldsWhat) {
  PageAllocator allocator(10);
  const std::vector<PageId> pages = *allocator.Allocate(3, "seq 7");
  allocator.Hold(pages, "epoch 12");
  allocator.Hold(pages, "epoch 12");
  const std::vector<PageHolder> holders = allocator.Holders();
  ASSERT_EQ(holders.size(), 2u);
  EXPECT_EQ(holders[0].owner, "epoch 12");
  EXPECT_EQ(holders[0].num_pages, 3);
  EXPECT_EQ(holders[0].num_holds, 6);
  EXPECT_EQ(holders[1].owner, "seq 7");
  EXPECT_EQ(holders[1].num_holds, 3);
  EXPECT_EQ(allocator.PagesOf("seq 7"), pages);
}

TEST(PageAllocatorTest, PrefersContiguousPages) {
  PageAllocator allocator(10);
  ASSERT_TRUE(allocator.Allocate(10, "all").ok());
  allocator.Release(std::vector<PageId>{1, 3, 5, 6, 7, 9}, "all");
  EXPECT_EQ(*allocator.Allocate(3, "run"), (std::vector<PageId>{5, 6, 7}));
  EXPECT_EQ(*allocator.Allocate(3, "scattered"), (std::vector<PageId>{1, 3, 9}));
}

// Random operations against a model that is nothing but a multiset of (owner, page).
TEST(PageAllocatorTest, ConservesPagesUnderAnyOperations) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const int64_t num_pages = 1 + random() % 40;
    PageAllocator allocator(num_pages);
    std::map<std::pair<std::string, PageId>, int> model;
    std::vector<uint64_t> generations(num_pages);
    const auto holds_of = [&](PageId page) {
      int count = 0;
      for (const auto& [key, holds] : model) count += key.second == page ? holds : 0;
      return count;
    };
    for (int step = 0; step < 300; ++step) {
      const std::string owner(1, static_cast<char>('a' + random() % 4));
      std::set<PageId> used_before;
      for (const auto& [key, holds] : model) used_before.insert(key.second);
      switch (random() % 4) {
        case 0: {
          const int64_t count = random() % 8;
          const auto pages = allocator.Allocate(count, owner);
          ASSERT_EQ(pages.ok(), count <= num_pages - static_cast<int64_t>(used_before.size()));
          if (!pages.ok()) break;
          ASSERT_EQ(std::set<PageId>(pages->begin(), pages->end()).size(), static_cast<size_t>(count));
          for (const PageId page : *pages) {
            ASSERT_FALSE(used_before.contains(page));
            model[{owner, page}] = 1;
          }
          break;
        }
        case 1:
          for (const PageId page : used_before) {
            if (random() % 3 != 0) continue;
            allocator.Hold(std::vector<PageId>{page}, owner);
            ++model[{owner, page}];
          }
          break;
        case 2: {
          std::vector<PageId> released;
          for (auto it = model.begin(); it != model.end();) {
            if (it->first.first == owner && random() % 2 == 0) {
              released.push_back(it->first.second);
              it = --it->second == 0 ? model.erase(it) : std::next(it);
            } else {
              ++it;
            }
          }
          allocator.Release(released, owner);
          break;
        }
        case 3:
          allocator.ReleaseAll(owner);
          std::erase_if(model, [&](const auto& entry) { return entry.first.first == owner; });
          break;
      }
      std::set<PageId> used;
      for (const auto& [key, holds] : model) used.insert(key.second);
      ASSERT_EQ(allocator.num_used(), static_cast<int64_t>(used.size()));
      ASSERT_EQ(allocator.num_used() + allocator.num_free(), allocator.num_pages());
      int64_t holds_in_model = 0;
      for (PageId page = 0; page < num_pages; ++page) {
        ASSERT_EQ(allocator.num_holds(page), holds_of(page));
        holds_in_model += holds_of(page);
        if (used_before.contains(page) && !used.contains(page)) ++generations[page];
        ASSERT_EQ(allocator.generation(page), generations[page]);
      }
      int64_t holds_in_table = 0;
      for (const PageHolder& holder : allocator.Holders()) holds_in_table += holder.num_holds;
      ASSERT_EQ(holds_in_table, holds_in_model);
    }
  }
}

TEST(PageAllocatorDeathTest, StopsOnMisuse) {
  PageAllocator allocator(4);
  const std::vector<PageId> pages = *allocator.Allocate(2, "a");
  EXPECT_DEATH(allocator.Release(pages, "b"), "b holds nothing");
  EXPECT_DEATH(allocator.Release(std::vector<PageId>{3}, "a"), "a does not hold page 3");
  EXPECT_DEATH(allocator.Hold(std::vector<PageId>{3}, "a"), "hold on the free page 3");
  EXPECT_DEATH(allocator.Hold(std::vector<PageId>{4}, "a"), "page 4 of 4");
}

}  // namespace
}  // namespace tandem::kvcache

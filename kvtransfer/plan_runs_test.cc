// Proves: for random pools, page lists and rectangles, the runs bring every (layer, page, kind) of the rectangle from
// its place to its place, each once, touch nothing else, and no two neighbours could have been one run.
#include "kvtransfer/plan_runs.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

using kvcache::KvCacheDtype;
using kvcache::KvLayout;
using kvcache::RecordKind;

// `count` distinct ids below num_pages; with luck in runs, as allocators give them.
template <typename Id>
std::vector<Id> RandomPages(std::mt19937_64& random, int64_t num_pages, size_t count) {
  std::vector<Id> all(num_pages);
  std::iota(all.begin(), all.end(), Id{0});
  if (random() % 3 == 0) {
    std::shuffle(all.begin(), all.end(), random);
  } else {
    std::rotate(all.begin(), all.begin() + random() % num_pages, all.end());
    if (num_pages > 1) std::swap(all[random() % num_pages], all[random() % num_pages]);
  }
  all.resize(count);
  return all;
}

TEST(PlanRunsTest, CoversEveryPageOfTheRectangleOnceAndNothingElse) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const KvLayout source = {.num_layers = static_cast<int>(1 + random() % 4),
                             .num_pages = static_cast<int64_t>(1 + random() % 12)};
    const KvLayout target = {.num_layers = source.num_layers, .num_pages = static_cast<int64_t>(1 + random() % 12)};
    const size_t num_logical = 1 + random() % std::min(source.num_pages, target.num_pages);
    const auto source_pages = RandomPages<uint32_t>(random, source.num_pages, num_logical);
    const auto target_pages = RandomPages<int32_t>(random, target.num_pages, num_logical);
    PageRectangle rectangle;
    rectangle.layer_begin = random() % source.num_layers;
    rectangle.layer_end = rectangle.layer_begin + random() % (source.num_layers - rectangle.layer_begin + 1);
    rectangle.page_begin = random() % num_logical;
    rectangle.page_end = rectangle.page_begin + random() % (num_logical - rectangle.page_begin + 1);
    const auto runs = PlanRuns(rectangle, {source, target, source_pages, target_pages});
    ASSERT_TRUE(runs.ok()) << runs.status();

    // Cut the runs at the borders of target pages, and look each place up in a table made page by page.
    std::map<int64_t, std::pair<int64_t, int64_t>> expected;  // target offset -> (source offset, bytes)
    for (int layer = rectangle.layer_begin; layer < rectangle.layer_end; ++layer) {
      for (int64_t page = rectangle.page_begin; page < rectangle.page_end; ++page) {
        expected[target.LatentOffset(layer, target_pages[page])] = {source.LatentOffset(layer, source_pages[page]),
                                                                    source.PageBytes(RecordKind::kLatent)};
        expected[target.IndexOffset(layer, target_pages[page])] = {source.IndexOffset(layer, source_pages[page]),
                                                                   kvcache::kIndexPageBytes};
      }
    }
    for (size_t i = 0; i < runs->size(); ++i) {
      ByteRun run = (*runs)[i];
      if (i > 0) {
        const ByteRun& before = (*runs)[i - 1];
        EXPECT_FALSE(before.source_offset + before.num_bytes == run.source_offset &&
                     before.target_offset + before.num_bytes == run.target_offset)
            << "two runs that are one, seed " << seed;
      }
      while (run.num_bytes > 0) {
        const auto place = expected.find(run.target_offset);
        ASSERT_NE(place, expected.end()) << "bytes that were not asked for or twice, seed " << seed;
        const auto [source_offset, num_bytes] = place->second;
        ASSERT_EQ(static_cast<int64_t>(run.source_offset), source_offset);
        ASSERT_GE(static_cast<int64_t>(run.num_bytes), num_bytes);
        run.source_offset += num_bytes;
        run.target_offset += num_bytes;
        run.num_bytes -= num_bytes;
        expected.erase(place);
      }
    }
    EXPECT_TRUE(expected.empty()) << expected.size() << " pages are missing, seed " << seed;
  }
}

TEST(PlanRunsTest, MakesTwoRunsALayerOfContiguousPages) {
  const KvLayout layout = {.num_layers = 3, .num_pages = 20};
  const std::vector<uint32_t> source_pages = {4, 5, 6, 7};
  const std::vector<int32_t> target_pages = {10, 11, 12, 13};
  const auto runs = PlanRuns({0, 3, 0, 4}, {layout, layout, source_pages, target_pages});
  ASSERT_TRUE(runs.ok());
  ASSERT_EQ(runs->size(), 6u);
  EXPECT_EQ((*runs)[0].num_bytes, 4 * 41984u);
  EXPECT_EQ((*runs)[1].num_bytes, 4 * 8448u);
}

TEST(PlanRunsTest, RefusesWhatLeavesAPool) {
  const KvLayout layout = {.num_layers = 2, .num_pages = 4};
  const std::vector<uint32_t> source_pages = {0, 4};  // 4 is outside
  const std::vector<int32_t> target_pages = {0, 1};
  const PageMap map = {layout, layout, source_pages, target_pages};
  EXPECT_TRUE(PlanRuns({0, 2, 0, 1}, map).ok());
  EXPECT_EQ(PlanRuns({0, 2, 0, 2}, map).status().message(), "source page 4 of a pool of 4 pages");
  EXPECT_EQ(PlanRuns({0, 3, 0, 1}, map).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PlanRuns({0, 2, 0, 3}, map).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(PlanRuns({1, 0, 0, 1}, map).status().code(), absl::StatusCode::kInvalidArgument);
  const std::vector<int32_t> bad_target = {-1, 1};
  EXPECT_EQ(PlanRuns({0, 2, 0, 1}, {layout, layout, source_pages, bad_target}).status().message(),
            "target page -1 of a pool of 4 pages");
  KvLayout other = layout;
  other.kv_cache_dtype = KvCacheDtype::kBfloat16;
  EXPECT_EQ(PlanRuns({0, 2, 0, 1}, {other, layout, source_pages, target_pages}).status().message(),
            "a source of bfloat16 records for a target of fp8_e4m3 records");
}

}  // namespace
}  // namespace tandem::kvtransfer

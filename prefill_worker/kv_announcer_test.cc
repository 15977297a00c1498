// Proves that announcements cover every page exactly once and never early, for any chunking.
#include "prefill_worker/kv_announcer.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kvcache/kv_layout.h"

namespace tandem::prefill {
namespace {

// Replays a chunking against a page-by-page account of which records exist.
void ExpectCoversEveryPageOnceAndNeverEarly(int64_t num_prompt_tokens, const std::vector<int64_t>& chunk_ends) {
  const int num_pages = kvcache::PagesForTokens(num_prompt_tokens);
  std::vector<int> times_announced(num_pages, 0);
  int64_t computed = 0;
  for (const int64_t chunk_end : chunk_ends) {
    const PageRange pages = PagesCompletedBy(computed, chunk_end, num_prompt_tokens);
    computed = chunk_end;
    for (int page = pages.begin; page < pages.end; ++page) {
      ++times_announced[page];
      const int64_t last_record = std::min<int64_t>((page + 1) * int64_t{kvcache::kPageTokens}, num_prompt_tokens);
      EXPECT_LE(last_record, computed) << "page " << page << " announced before its last record was computed";
    }
  }
  for (int page = 0; page < num_pages; ++page) EXPECT_EQ(times_announced[page], 1) << "page " << page;
}

TEST(KvAnnouncerTest, AFullPageIsCompleteOnlyWithItsLastToken) {
  EXPECT_TRUE(PagesCompletedBy(0, 63, 200).empty());
  EXPECT_EQ(PagesCompletedBy(63, 64, 200), (PageRange{0, 1}));
  EXPECT_EQ(PagesCompletedBy(64, 191, 200), (PageRange{1, 2}));
}

TEST(KvAnnouncerTest, ThePartialLastPageComesWithTheLastChunk) {
  EXPECT_EQ(PagesCompletedBy(0, 1, 1), (PageRange{0, 1}));
  EXPECT_EQ(PagesCompletedBy(128, 200, 200), (PageRange{2, 4}));
  EXPECT_EQ(PagesCompletedBy(199, 200, 200), (PageRange{3, 4}));
}

TEST(KvAnnouncerTest, EveryUniformChunkSizeCoversThePrompt) {
  for (const int64_t num_prompt_tokens : {1, 63, 64, 65, 127, 128, 200}) {
    for (int64_t chunk = 1; chunk <= num_prompt_tokens; ++chunk) {
      std::vector<int64_t> ends;
      for (int64_t end = chunk; end < num_prompt_tokens; end += chunk) ends.push_back(end);
      ends.push_back(num_prompt_tokens);
      ExpectCoversEveryPageOnceAndNeverEarly(num_prompt_tokens, ends);
    }
  }
}

TEST(KvAnnouncerTest, RandomChunkingsCoverThePrompt) {
  std::mt19937 rng(3);
  for (int round = 0; round < 2000; ++round) {
    const int64_t num_prompt_tokens = std::uniform_int_distribution<int>(1, 3000)(rng);
    std::vector<int64_t> ends;
    for (int64_t end = 0; end < num_prompt_tokens;) {
      end = std::min(num_prompt_tokens, end + std::uniform_int_distribution<int>(1, 300)(rng));
      ends.push_back(end);
    }
    ExpectCoversEveryPageOnceAndNeverEarly(num_prompt_tokens, ends);
  }
}

}  // namespace
}  // namespace tandem::prefill

// Proves, over random sequences of joins, growth, ends, evictions and flushes: a match is the longest that a brute
// force over everything that was ever cached allows, and holds the bytes of exactly these tokens; pages are conserved;
// held pages are never evicted; every page that nobody holds can be evicted, the least recently used first.
#include "kvcache/prefix_index.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::kvcache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Tokens = std::vector<uint32_t>;

// Pages of which each is one number, repeated, and a part of a page more.
Tokens PagesOf(const std::vector<uint32_t>& numbers, int num_more = kPageTokens / 2) {
  Tokens tokens;
  for (const uint32_t number : numbers) tokens.insert(tokens.end(), kPageTokens, number);
  tokens.insert(tokens.end(), num_more, 1000);
  return tokens;
}

PrefixTokens Prompt(const Tokens& tokens, absl::string_view salt = "") {
  return {.tokens = tokens, .num_prompt_tokens = static_cast<int64_t>(tokens.size()), .cache_salt = salt};
}

struct Cache {
  explicit Cache(int64_t num_pages, PrefixIndexOptions options = {}) : pages(num_pages), index(options, pages) {}
  // A request computes the whole pages of this prompt and ends.
  std::vector<PageId> Compute(const Tokens& tokens, absl::string_view salt = "", std::string_view who = "request") {
    const auto taken = pages.Allocate(static_cast<int64_t>(tokens.size()) / kPageTokens, who).value();
    index.Add(Prompt(tokens, salt), taken, who);
    pages.ReleaseAll(who);
    return taken;
  }
  size_t NumMatched(const Tokens& tokens, absl::string_view salt = "") const {
    return index.Match(Prompt(tokens, salt), static_cast<int64_t>(tokens.size())).size();
  }

  PageAllocator pages;
  PrefixIndex index;
};

TEST(PrefixIndexTest, JoinsTheLongestBeginningOfWholePages) {
  Cache cache(16);
  const auto first = cache.Compute(PagesOf({1, 2, 3}));
  cache.Compute(PagesOf({1, 9}));
  EXPECT_EQ(cache.index.Match(Prompt(PagesOf({1, 2, 3, 4})), 1 << 20), first);
  EXPECT_EQ(cache.index.Match(Prompt(PagesOf({1, 2, 4})), 1 << 20),
            std::vector<PageId>(first.begin(), first.begin() + 2));
  EXPECT_EQ(cache.index.Match(Prompt(PagesOf({1, 2, 3})), 2 * kPageTokens - 1).size(), 1u) << "no more than is allowed";
  EXPECT_THAT(cache.index.Match(Prompt(PagesOf({2, 3})), 1 << 20), IsEmpty());
  EXPECT_EQ(cache.pages.num_used(), 0);
  EXPECT_EQ(cache.pages.num_idle(), 4) << "the first page of the second is that of the first";
  EXPECT_EQ(cache.index.num_pages(), 4);
}

TEST(PrefixIndexTest, SaltsShareNothing) {
  Cache cache(16);
  cache.Compute(PagesOf({1, 2}), "tenant a");
  EXPECT_EQ(cache.NumMatched(PagesOf({1, 2}), "tenant a"), 2u);
  EXPECT_EQ(cache.NumMatched(PagesOf({1, 2}), "tenant b"), 0u);
  EXPECT_EQ(cache.NumMatched(PagesOf({1, 2})), 0u);
}

TEST(PrefixIndexTest, GeneratedTokensAreNotPromptTokens) {
  Cache cache(16);
  const Tokens tokens = PagesOf({1, 2});
  const auto pages = cache.pages.Allocate(2, "request").value();
  PrefixTokens sequence = Prompt(tokens);
  sequence.num_prompt_tokens = kPageTokens + 1;
  cache.index.Add(sequence, pages, "request");
  EXPECT_THAT(cache.index.Match(Prompt(tokens), 1 << 20), ElementsAre(pages[0]));
  EXPECT_EQ(cache.index.Match(sequence, 1 << 20), pages);
  cache.pages.ReleaseAll("request");
}

TEST(PrefixIndexTest, WithAnMtpLayerAPageIsJoinedOnlyWhereThePromptGoesOnAlike) {
  Cache cache(16, {.covers_next_token = true});
  cache.Compute(PagesOf({1, 2}));  // behind page 1 comes token 1000
  EXPECT_EQ(cache.NumMatched(PagesOf({1, 2})), 2u);
  EXPECT_EQ(cache.NumMatched(PagesOf({1, 2, 3})), 1u) << "the second page's last MTP record is made of token 1000";
  EXPECT_EQ(cache.NumMatched(PagesOf({1, 3})), 0u);
  EXPECT_EQ(cache.NumMatched(PagesOf({1, 2}, /*num_more=*/0)), 1u) << "what comes behind is not known";
  cache.Compute(PagesOf({1, 2, 3}));
  EXPECT_EQ(cache.NumMatched(PagesOf({1, 2, 3})), 3u);
  EXPECT_EQ(cache.NumMatched(PagesOf({1, 2})), 2u);
}

uint64_t SameKey(uint64_t, absl::Span<const uint32_t>, uint64_t, uint32_t) { return 7; }

TEST(PrefixIndexTest, PromptsWhoseKeysCollideShareNothing) {
  Cache cache(16, {.page_key = &SameKey});
  const auto first = cache.Compute(PagesOf({1, 2}));
  const auto second = cache.Compute(PagesOf({3, 2}));
  EXPECT_EQ(cache.index.Match(Prompt(PagesOf({1, 2})), 1 << 20), first);
  EXPECT_EQ(cache.index.Match(Prompt(PagesOf({3, 2})), 1 << 20), second);
  EXPECT_EQ(cache.NumMatched(PagesOf({2})), 0u);
  EXPECT_EQ(cache.index.Evict(16), 4);
}

TEST(PrefixIndexTest, EvictsTheLeastRecentlyUsedFromTheirEnds) {
  Cache cache(16);
  cache.Compute(PagesOf({1, 2}));
  cache.Compute(PagesOf({1, 3}));
  cache.Compute(PagesOf({4}));
  cache.index.Touch(Prompt(PagesOf({1, 2})), 2);
  EXPECT_EQ(cache.index.Evict(1), 1);
  EXPECT_EQ(cache.NumMatched(PagesOf({1, 3})), 1u);
  EXPECT_EQ(cache.index.Evict(1), 1);
  EXPECT_EQ(cache.NumMatched(PagesOf({4})), 0u);
  EXPECT_EQ(cache.NumMatched(PagesOf({1, 2})), 2u);
  EXPECT_EQ(cache.index.Evict(5), 2);
  EXPECT_EQ(cache.pages.num_free(), 16);
}

TEST(PrefixIndexTest, WhatIsHeldStaysAndIsFreedWithItsLastHold) {
  Cache cache(4);
  const auto pages = cache.Compute(PagesOf({1, 2}));
  cache.pages.Hold(pages, "reader");
  EXPECT_EQ(cache.index.Evict(4), 0);
  cache.index.Flush();
  EXPECT_EQ(cache.NumMatched(PagesOf({1, 2})), 0u);
  EXPECT_EQ(cache.pages.num_used(), 2);
  cache.pages.ReleaseAll("reader");
  EXPECT_EQ(cache.pages.num_free(), 4);
}

TEST(PrefixIndexTest, TheBoundIsKept) {
  Cache cache(16, {.num_pages_max = 3});
  cache.Compute(PagesOf({1, 2}));
  cache.Compute(PagesOf({3, 4}));
  EXPECT_EQ(cache.index.num_pages(), 3);
  EXPECT_EQ(cache.NumMatched(PagesOf({3, 4})), 2u);
  EXPECT_EQ(cache.NumMatched(PagesOf({1, 2})), 1u);
  cache.Compute(PagesOf({5, 6, 7, 8, 9}));
  EXPECT_EQ(cache.index.num_pages(), 3);
  EXPECT_EQ(cache.NumMatched(PagesOf({5, 6, 7, 8, 9})), 3u);
}

TEST(PrefixIndexTest, TheBoundMayTakeTheRestOfTheSameTree) {
  Cache cache(4, {.num_pages_max = 1});
  cache.Compute(PagesOf({1}), "salt");
  cache.Compute(PagesOf({2}), "salt");
  EXPECT_EQ(cache.NumMatched(PagesOf({2}), "salt"), 1u);
  EXPECT_EQ(cache.index.num_pages(), 1);
}

TEST(PrefixIndexTest, ChangesTellWhatIsHeld) {
  Cache cache(8, {.records_changes = true});
  cache.Compute(PagesOf({1, 2}));
  cache.index.Evict(1);
  cache.Compute(PagesOf({1, 3}));
  std::multiset<uint64_t> told;
  for (const PrefixChange& change : cache.index.TakeChanges()) {
    if (change.is_added) {
      told.insert(change.page_key);
    } else {
      told.erase(told.find(change.page_key));
    }
  }
  const std::vector<uint64_t> keys = cache.index.Keys();
  EXPECT_EQ(told, std::multiset<uint64_t>(keys.begin(), keys.end()));
  EXPECT_THAT(cache.index.TakeChanges(), IsEmpty());
}

// Requests as a prefill engine has them: each takes pages for its whole prompt, the cached ones first, computes in
// chunks, publishes what is whole, and ends. What a page holds is written down beside it.
class RandomTraffic {
 public:
  RandomTraffic(unsigned seed, bool covers_next_token)
      : random_(seed),
        covers_next_token_(covers_next_token),
        cache_(24, {.num_pages_max = seed % 3 == 0 ? 7 : 0, .covers_next_token = covers_next_token}) {
    content_.resize(24);
  }

  void Run(int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      switch (Draw(10)) {
        case 0:
        case 1:
        case 2:
          Begin();
          break;
        case 3:
        case 4:
        case 5:
        case 6:
          if (!requests_.empty()) Compute(Any());
          break;
        case 7:
        case 8:
          if (!requests_.empty()) End(Any());
          break;
        default:
          if (Draw(8) == 0) {
            cache_.index.Flush();
            EXPECT_EQ(cache_.pages.num_idle(), 0);
          } else if (Draw(8) == 0) {
            const Tokens tokens = DrawPrompt();
            cache_.index.Drop(Prompt(tokens));
            EXPECT_EQ(cache_.NumMatched(tokens), 0u);
          } else {
            EvictSome();
          }
      }
      Check();
    }
    while (!requests_.empty()) End(requests_.begin()->first);
    const int64_t num_idle = cache_.pages.num_idle();
    EXPECT_EQ(cache_.index.Evict(1000), num_idle);
    EXPECT_EQ(cache_.pages.num_free(), cache_.pages.num_pages());
  }
  int num_joined() const { return num_joined_; }

 private:
  struct Request {
    Tokens tokens;
    std::vector<PageId> pages;
    int num_computed = 0;  // pages
  };

  int Draw(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }
  int Any() { return std::next(requests_.begin(), Draw(static_cast<int>(requests_.size())))->first; }
  Tokens DrawPrompt() {
    std::vector<uint32_t> numbers(1 + Draw(5));
    for (uint32_t& number : numbers) number = static_cast<uint32_t>(Draw(2));
    return PagesOf(numbers, 1);
  }
  // What decides a page's bytes: all tokens up to its end, and with an MTP layer the next one.
  Tokens ContentOf(const Tokens& tokens, size_t page) const {
    return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>((page + 1) * kPageTokens + covers_next_token_)};
  }

  void Begin() {
    Request request{.tokens = DrawPrompt()};
    const auto num_pages = static_cast<int64_t>(request.tokens.size()) / kPageTokens + 1;
    const auto limit = static_cast<int64_t>(request.tokens.size()) - 1;
    request.pages = cache_.index.Match(Prompt(request.tokens), limit);
    // Brute force: as many pages as are cached anywhere with this content, from the first on.
    size_t num_expected = 0;
    while (num_expected < static_cast<size_t>(limit / kPageTokens) &&
           IsCached(ContentOf(request.tokens, num_expected))) {
      ++num_expected;
    }
    EXPECT_EQ(request.pages.size(), num_expected);
    for (size_t i = 0; i < request.pages.size(); ++i) {
      EXPECT_EQ(content_[request.pages[i]], ContentOf(request.tokens, i)) << "another page's bytes";
    }
    const auto num_own = num_pages - static_cast<int64_t>(request.pages.size());
    const auto num_idle_joined = std::count_if(request.pages.begin(), request.pages.end(),
                                               [&](PageId page) { return cache_.pages.num_holds(page) == 0; });
    if (cache_.pages.num_free() + cache_.pages.num_idle() - num_idle_joined < num_own) return;
    const std::string owner = "request " + std::to_string(next_id_);
    cache_.pages.Hold(request.pages, owner);
    cache_.index.Touch(Prompt(request.tokens), static_cast<int64_t>(request.pages.size()));
    const int64_t num_short = num_own - cache_.pages.num_free();
    if (num_short > 0) {
      EXPECT_EQ(cache_.index.Evict(num_short), num_short) << "every idle page can be evicted";
    }
    const auto own = cache_.pages.Allocate(num_own, owner);
    ASSERT_TRUE(own.ok()) << own.status();
    for (const PageId page : *own) content_[page].clear();
    num_joined_ += static_cast<int>(request.pages.size());
    request.num_computed = static_cast<int>(request.pages.size());
    request.pages.insert(request.pages.end(), own->begin(), own->end());
    requests_.emplace(next_id_++, std::move(request));
  }
  void Compute(int id) {
    Request& request = requests_.at(id);
    const int num_whole = static_cast<int>(request.tokens.size()) / kPageTokens;
    for (int i = Draw(3); i > 0 && request.num_computed < num_whole; --i) {
      content_[request.pages[request.num_computed]] = ContentOf(request.tokens, request.num_computed);
      ++request.num_computed;
    }
    cache_.index.Add(Prompt(request.tokens), absl::MakeConstSpan(request.pages).first(request.num_computed),
                     "request " + std::to_string(id));
  }
  void End(int id) {
    cache_.pages.ReleaseAll("request " + std::to_string(id));
    requests_.erase(id);
  }
  void EvictSome() {
    const int64_t wanted = Draw(5);
    const int64_t num_idle = cache_.pages.num_idle();
    EXPECT_EQ(cache_.index.Evict(wanted), std::min(wanted, num_idle));
  }
  bool IsCached(const Tokens& content) const {
    for (PageId page = 0; page < cache_.pages.num_pages(); ++page) {
      if (cache_.pages.is_cached(page) && content_[page] == content) return true;
    }
    return false;
  }
  void Check() {
    const PageAllocator& pages = cache_.pages;
    ASSERT_EQ(pages.num_free() + pages.num_used() + pages.num_idle(), pages.num_pages());
    int64_t num_cached = 0;
    for (PageId page = 0; page < pages.num_pages(); ++page) num_cached += pages.is_cached(page);
    ASSERT_EQ(num_cached, cache_.index.num_pages());
    for (const auto& [id, request] : requests_) {
      for (int i = 0; i < request.num_computed; ++i) {
        ASSERT_EQ(content_[request.pages[i]], ContentOf(request.tokens, i)) << "a held page has a new tenant";
      }
    }
  }

  std::mt19937 random_;
  const bool covers_next_token_;
  Cache cache_;
  std::vector<Tokens> content_;  // by page
  std::map<int, Request> requests_;
  int next_id_ = 0;
  int num_joined_ = 0;
};

TEST(PrefixIndexTest, RandomTrafficJoinsWhatBruteForceFinds) {
  int num_joined = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    RandomTraffic traffic(seed, seed % 2 == 0);
    traffic.Run(300);
    num_joined += traffic.num_joined();
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(num_joined, 1000);
}

}  // namespace
}  // namespace tandem::kvcache

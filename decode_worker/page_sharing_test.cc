// Proves which pages of a prompt are shared, and that a reservation counts each page once and never more than fits.
#include "decode_worker/page_sharing.h"

#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kvcache/kv_layout.h"

namespace tandem::decode {
namespace {

TEST(PageSharingTest, ThePageOfThePromptsLastTokenIsPrivateFullOrNot) {
  EXPECT_EQ(SharedPages(1), 0);
  EXPECT_EQ(SharedPages(63), 0);
  EXPECT_EQ(SharedPages(64), 0);
  EXPECT_EQ(SharedPages(65), 1);
  EXPECT_EQ(SharedPages(128), 1);
  EXPECT_EQ(SharedPages(129), 2);
}

TEST(PageSharingTest, OneSequenceTakesThePagesOfItsTokens) {
  for (const int64_t prompt : {1, 64, 65, 128, 200}) {
    for (const int64_t generated : {0, 1, 64, 100}) {
      const std::vector<int64_t> tokens = {prompt + generated};
      EXPECT_EQ(PlanReservation(prompt, tokens, 8, 100), (Reservation{1, kvcache::PagesForTokens(prompt + generated)}));
    }
  }
}

TEST(PageSharingTest, CountsEachPageOnceAndTakesTheLongestPrefixThatFits) {
  std::mt19937 random(7);
  for (int round = 0; round < 5000; ++round) {
    const int64_t prompt = 1 + random() % 300;
    std::vector<int64_t> tokens(1 + random() % 6);
    for (int64_t& count : tokens) count = prompt + random() % 200;
    const int num_sequences_max = 1 + random() % 6;
    const int64_t num_pages_max = 1 + random() % 20;
    // Pages by name: (choice, logical page), shared ones under choice -1.
    std::set<std::pair<int, int64_t>> pages;
    Reservation expected;
    for (size_t choice = 0; choice < tokens.size() && static_cast<int>(choice) < num_sequences_max; ++choice) {
      for (int64_t page = 0; page * kvcache::kPageTokens < tokens[choice]; ++page) {
        const bool is_shared = (page + 1) * kvcache::kPageTokens <= prompt - 1;
        pages.emplace(is_shared ? -1 : static_cast<int>(choice), page);
      }
      if (static_cast<int64_t>(pages.size()) > num_pages_max) break;
      expected = {static_cast<int>(choice) + 1, static_cast<int>(pages.size())};
    }
    EXPECT_EQ(PlanReservation(prompt, tokens, num_sequences_max, num_pages_max), expected) << round;
  }
}

TEST(PageSharingTest, NothingIsReservedWhereNotOneFits) {
  const std::vector<int64_t> tokens = {200, 70};
  EXPECT_EQ(PlanReservation(70, tokens, 8, 3), Reservation());
}

}  // namespace
}  // namespace tandem::decode

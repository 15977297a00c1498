// Proves the counts against a plain map under random adds and removes, and that no memory is taken meanwhile.
#include "model/token_counts.h"

#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::model {
namespace {

TEST(TokenCountsTest, AgreesWithAPlainMapAndTakesNoMemory) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<uint32_t> prompt(random() % 50);
    for (uint32_t& token : prompt) token = random() % 60;
    constexpr int kSteps = 300;
    TokenCounts counts(prompt, kSteps);
    const std::set<uint32_t> in_prompt(prompt.begin(), prompt.end());
    std::map<int32_t, int> generated;
    std::vector<int32_t> added;
    ASSERT_EQ(counts.entries().size(), in_prompt.size());
    counts.Add(1000);  // so that there is an address
    counts.Remove(1000);
    const auto* address = counts.entries().data();
    for (int step = 1; step < kSteps; ++step) {
      if (!added.empty() && random() % 4 == 0) {
        --generated[added.back()];
        counts.Remove(added.back());
        added.pop_back();
      } else {
        added.push_back(static_cast<int32_t>(random() % 90));
        ++generated[added.back()];
        counts.Add(added.back());
      }
    }
    EXPECT_EQ(counts.entries().data(), address);
    int32_t last = -1;
    std::set<int32_t> seen;
    for (const TokenCounts::Entry& entry : counts.entries()) {
      EXPECT_GT(entry.token, last);
      last = entry.token;
      seen.insert(entry.token);
      EXPECT_EQ(entry.is_in_prompt, in_prompt.contains(entry.token));
      EXPECT_EQ(entry.num_generated, generated.contains(entry.token) ? generated[entry.token] : 0);
    }
    for (const auto& [token, count] : generated) EXPECT_TRUE(seen.contains(token));
    for (const uint32_t token : in_prompt) EXPECT_TRUE(seen.contains(static_cast<int32_t>(token)));
  }
}

TEST(TokenCountsTest, AnEmptyOneHasNoEntries) { EXPECT_TRUE(TokenCounts().entries().empty()); }

}  // namespace
}  // namespace tandem::model

// Proves that a key depends on everything that the page's bytes depend on, and fixes vectors: the keys are spoken
// between processes of different builds.
#include "proto/page_key.h"

#include <numeric>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::proto {
namespace {

TEST(PageKeyTest, EveryInputMakesADifference) {
  std::vector<uint32_t> tokens(kPageKeyTokens);
  for (int i = 0; i < kPageKeyTokens; ++i) tokens[i] = static_cast<uint32_t>(10 * i);
  std::set<uint64_t> keys;
  int num_keys = 0;
  const auto add = [&](uint64_t key) {
    keys.insert(key);
    ++num_keys;
  };
  for (const uint64_t domain : {1, 2}) {
    for (const char* salt : {"", "a", "b", "ab"}) {
      const uint64_t root = RootPageKey(domain, salt);
      add(root);
      add(PageKey(root, tokens, kAllPromptTokens, kNoToken));
      add(PageKey(root, tokens, kAllPromptTokens, 0));
      add(PageKey(root, tokens, kAllPromptTokens, 7));
      for (int i = 0; i < kPageKeyTokens; ++i) {
        add(PageKey(root, tokens, uint64_t{1} << i, kNoToken));
        std::vector<uint32_t> other = tokens;
        ++other[i];
        add(PageKey(root, other, kAllPromptTokens, kNoToken));
        std::swap(other[i], other[(i + 1) % kPageKeyTokens]);
        add(PageKey(root, other, kAllPromptTokens, kNoToken));
      }
    }
  }
  EXPECT_EQ(static_cast<int>(keys.size()), num_keys);
}

TEST(PageKeyTest, AChainDependsOnItsBeginning) {
  const std::vector<uint32_t> same(kPageKeyTokens, 5);
  const uint64_t root = RootPageKey(1, "");
  const uint64_t first = PageKey(root, same, kAllPromptTokens, kNoToken);
  EXPECT_NE(first, PageKey(first, same, kAllPromptTokens, kNoToken));
}

// By another implementation of the same sentences, in Python.
TEST(PageKeyTest, Vectors) {
  EXPECT_EQ(HashText("tandem"), 0xe6d0c596ee0ca8d5u);
  EXPECT_EQ(RootPageKey(42, "salt"), 0x785fa91dad3d753cu);
  std::vector<uint32_t> tokens(kPageKeyTokens);
  std::iota(tokens.begin(), tokens.end(), 0);
  EXPECT_EQ(PageKey(42, tokens, 3, 9), 0xed82d48fbb26a161u);
}

}  // namespace
}  // namespace tandem::proto

// Proves that pieces cover the text, that merges are built from what is known before them, and the order of merges on a
// text small enough to count by hand.
#include "tools/make_checkpoint/bpe_trainer.h"

#include <set>

#include "gtest/gtest.h"
#include "tools/make_checkpoint/sample_text.h"

namespace tandem::make_checkpoint {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

TEST(SplitIntoPiecesTest, CutsWordsDigitsCjkAndPunctuation) {
  EXPECT_EQ(
      SplitIntoPieces("the cat, 42  Äpfel你好。\n\n x"),
      (std::vector<std::string_view>{"the", " cat", ",", " ", "4", "2", " ", " Äpfel", "你好", "。", "\n\n", " x"}));
}

TEST(SplitIntoPiecesTest, CoversTheSampleTextWithoutGaps) {
  std::string joined;
  for (std::string_view piece : SplitIntoPieces(kSampleText)) {
    EXPECT_FALSE(piece.empty());
    joined += piece;
  }
  EXPECT_EQ(joined, kSampleText);
}

TEST(TrainMergesTest, TakesTheMostFrequentPairFirstAndBreaksTiesByBytes) {
  // "ab" 3 times, then "abc" twice against "xy" twice: "ab"+"c" sorts first.
  EXPECT_EQ(TrainMerges("abc\nabc\nab\nxy\nxy", 3), (Merges{{"a", "b"}, {"ab", "c"}, {"x", "y"}}));
}

TEST(TrainMergesTest, EndsWhereEveryPieceIsOneToken) {
  EXPECT_EQ(TrainMerges("abab\nab", 100), (Merges{{"a", "b"}, {"ab", "ab"}}));
}

TEST(TrainMergesTest, BuildsEachMergeFromKnownTokensAndNoTokenTwice) {
  std::set<std::string> known;
  for (int byte = 0; byte < 256; ++byte) known.insert(std::string(1, static_cast<char>(byte)));
  const Merges merges = TrainMerges(kSampleText, 3000);
  EXPECT_GT(merges.size(), 1500u);
  for (const auto& [left, right] : merges) {
    EXPECT_TRUE(known.contains(left)) << left;
    EXPECT_TRUE(known.contains(right)) << right;
    EXPECT_TRUE(known.insert(left + right).second) << left << "|" << right;
    EXPECT_LE((left + right).size(), 24u);
  }
}

TEST(TrainMergesTest, ListsAPrefixWhereFewerAreWanted) {
  const Merges all = TrainMerges(kSampleText, 500);
  const Merges some = TrainMerges(kSampleText, 100);
  ASSERT_EQ(some.size(), 100u);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
}

}  // namespace
}  // namespace tandem::make_checkpoint

// The rule by its arithmetic: what stays, what goes, and how much room the answer gets.
#include "router/prompt_truncation.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::router {
namespace {

using ::testing::ElementsAre;

std::vector<TokenId> Count(int size) {
  std::vector<TokenId> prompt(size);
  std::iota(prompt.begin(), prompt.end(), 0);
  return prompt;
}

TEST(PromptTruncationTest, APromptWithRoomForOneTokenIsLeftAsItIs) {
  std::vector<TokenId> prompt = Count(15);
  EXPECT_EQ(TruncatePrompt(16, 8, &prompt), 0) << "max_tokens is cut, as without the option";
  EXPECT_EQ(prompt, Count(15));
}

TEST(PromptTruncationTest, TheFirstTokenAndTheLastOnesStay) {
  std::vector<TokenId> prompt = Count(20);
  EXPECT_EQ(TruncatePrompt(8, 3, &prompt), 15);
  EXPECT_THAT(prompt, ElementsAre(0, 16, 17, 18, 19));
}

TEST(PromptTruncationTest, TheAnswerGetsWhatWasAskedForUpToHalfOfTheContext) {
  for (const int64_t size : {64, 65, 1000}) {
    for (const auto& [asked, room] : std::vector<std::pair<std::optional<int64_t>, size_t>>{
             {1, 1}, {20, 20}, {32, 32}, {33, 32}, {1 << 20, 32}, {std::nullopt, 16}}) {
      std::vector<TokenId> prompt = Count(static_cast<int>(size));
      const int64_t dropped = TruncatePrompt(64, asked, &prompt);
      EXPECT_EQ(prompt.size(), 64 - room);
      EXPECT_EQ(dropped, size - static_cast<int64_t>(prompt.size()));
      EXPECT_EQ(prompt.front(), 0u);
      EXPECT_EQ(prompt.back(), static_cast<TokenId>(size - 1));
    }
  }
}

}  // namespace
}  // namespace tandem::router

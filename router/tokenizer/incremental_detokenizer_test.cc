// Every way of cutting a stream of ids gives the text of the whole, for text and for bytes that are none.
#include "router/tokenizer/incremental_detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "router/tokenizer/small_tokenizer.h"
#include "router/tokenizer/utf8.h"

namespace tandem::router {
namespace {

class IncrementalDetokenizerTest : public testing::Test {
 protected:
  // The id of a single byte.
  static TokenId Byte(int byte) { return 3 + static_cast<TokenId>(byte); }

  static std::vector<TokenId> Bytes(const std::string& bytes) {
    std::vector<TokenId> ids;
    for (const char byte : bytes) ids.push_back(Byte(static_cast<uint8_t>(byte)));
    return ids;
  }

  // One delta per id; the empty ones are "".
  std::vector<std::string> Deltas(const std::vector<TokenId>& ids) {
    IncrementalDetokenizer detokenizer(*tokenizer_);
    std::vector<std::string> deltas;
    for (const TokenId id : ids) detokenizer.Append({id}, &deltas.emplace_back());
    detokenizer.Finish(&deltas.emplace_back());
    return deltas;
  }

  std::unique_ptr<const Tokenizer> tokenizer_ = MakeSmallTokenizer();
};

using Texts = std::vector<std::string>;

TEST_F(IncrementalDetokenizerTest, ACharacterComesOutWithItsLastByte) {
  EXPECT_EQ(Deltas(Bytes("aé你🙂")), (Texts{"a", "", "é", "", "", "你", "", "", "", "🙂", ""}));
  EXPECT_EQ(Deltas(*tokenizer_->Encode("🙂", Tokenizer::AddedTokens::kIgnore)), (Texts{"", "🙂", ""}));
}

TEST_F(IncrementalDetokenizerTest, KnowsWhichTokensGoOnWithAHeldCharacter) {
  IncrementalDetokenizer detokenizer(*tokenizer_);
  std::string text;
  EXPECT_FALSE(detokenizer.IsContinuedBy(Byte(0xBD))) << "nothing waits";
  detokenizer.Append({Byte(0xE4)}, &text);
  EXPECT_TRUE(detokenizer.IsContinuedBy(Byte(0xBD)));
  EXPECT_FALSE(detokenizer.IsContinuedBy(Byte('z')));
  EXPECT_FALSE(detokenizer.IsContinuedBy(Byte(0xF0)));
  detokenizer.Append({Byte(0xBD), Byte(0xA0)}, &text);
  detokenizer.Append({Byte(0xE0)}, &text);
  EXPECT_FALSE(detokenizer.IsContinuedBy(Byte(0x80))) << "overlong";
}

TEST_F(IncrementalDetokenizerTest, AByteThatCannotCompleteIsReplacedAtOnce) {
  EXPECT_EQ(Deltas(Bytes("\x80")), (Texts{"\uFFFD", ""}));
  EXPECT_EQ(Deltas(Bytes("\xE4\xBDz")), (Texts{"", "", "\uFFFDz", ""}));
  EXPECT_EQ(Deltas(Bytes("\xF0\x9F\xF0")), (Texts{"", "", "\uFFFD", "\uFFFD"}));
  EXPECT_EQ(Deltas(Bytes("\xED\xA0\x80")), (Texts{"", "\uFFFD\uFFFD", "\uFFFD", ""}));
}

TEST_F(IncrementalDetokenizerTest, AnIncompleteEndIsOneReplacementAtTheVeryEnd) {
  EXPECT_EQ(Deltas(Bytes("a\xF0\x9F\x99")), (Texts{"a", "", "", "", "\uFFFD"}));
}

TEST_F(IncrementalDetokenizerTest, FinishingStartsANewStream) {
  IncrementalDetokenizer detokenizer(*tokenizer_);
  std::string text;
  detokenizer.Append({Byte(0xE4)}, &text);
  EXPECT_EQ(detokenizer.num_pending_bytes(), 1u);
  detokenizer.Finish(&text);
  detokenizer.Append({Byte('a')}, &text);
  detokenizer.Finish(&text);
  EXPECT_EQ(text, "\uFFFDa");
}

TEST_F(IncrementalDetokenizerTest, AddedTokensAreTheirOwnText) {
  std::vector<TokenId> ids = Bytes("\xE4");
  ids.push_back(*tokenizer_->FindAddedToken("</think>"));
  ids.push_back(tokenizer_->num_ids());  // stands for nothing
  EXPECT_EQ(Deltas(ids), (Texts{"", "\uFFFD</think>", "", ""}));
}

// All splits of short streams; the pieces must be valid UTF-8, hold back at most 3 bytes and join to the whole.
TEST_F(IncrementalDetokenizerTest, EverySplitGivesTheTextOfTheWhole) {
  std::mt19937 generator(5);
  const int kBytes[] = {'a', 0x80, 0x99, 0x9F, 0xBD, 0xA0, 0xC3, 0xE4, 0xED, 0xF0, 0xF4, 0xFF};
  for (int round = 0; round < 200; ++round) {
    std::vector<TokenId> ids;
    for (int i = 0; i < 9; ++i) {
      const uint32_t kind = generator() % 8;
      if (kind == 0) {
        ids.push_back(*tokenizer_->FindAddedToken("<think>"));
      } else if (kind == 1) {
        ids.push_back(tokenizer_->Encode("🙂", Tokenizer::AddedTokens::kIgnore)->front());
      } else {
        ids.push_back(Byte(kBytes[generator() % std::size(kBytes)]));
      }
    }
    const std::string whole = tokenizer_->Decode(ids);
    for (int cuts = 0; cuts < 1 << 8; ++cuts) {
      IncrementalDetokenizer detokenizer(*tokenizer_);
      std::string joined;
      std::vector<TokenId> delta;
      for (int i = 0; i < 9; ++i) {
        delta.push_back(ids[i]);
        if (i < 8 && (cuts >> i & 1) == 0) continue;
        std::string text;
        detokenizer.Append(delta, &text);
        delta.clear();
        ASSERT_EQ(FindInvalidUtf8(text), text.size());
        ASSERT_LE(detokenizer.num_pending_bytes(), 3u);
        joined += text;
      }
      detokenizer.Finish(&joined);
      ASSERT_EQ(joined, whole) << testing::PrintToString(ids);
    }
  }
}

}  // namespace
}  // namespace tandem::router

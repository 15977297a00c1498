// Proves that messages say every token once, with its log-probabilities, and stay below the bound of a message.
#include "decode_worker/token_messages.h"

#include <algorithm>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr size_t kMessageBytesMax = 256 * 1024;

model::TokenLogprobs LogprobsAt(int choice, size_t position, int num_top) {
  model::TokenLogprobs logprobs{.logprob = -1.0f - choice - 0.001f * position, .num_top = num_top};
  for (int place = 0; place < num_top; ++place) {
    logprobs.top_tokens[place] = 129'000 + place;
    logprobs.top_logprobs[place] = -0.5f * place;
  }
  return logprobs;
}

// num_generated: of each choice.
Request MakeRequest(const std::vector<size_t>& num_generated, size_t num_brought, int num_top) {
  Request request;
  request.generate.key = {.router_incarnation = ~uint64_t{0}, .request_id = ~uint64_t{0}, .attempt = 9};
  request.draws.params.wants_logprobs = num_top >= 0;
  request.draws.params.num_top_logprobs = std::max(num_top, 0);
  for (size_t choice = 0; num_brought > 0 && choice < num_generated.size(); ++choice) {
    request.generate.head.add_resumed()->set_num_tokens(static_cast<uint32_t>(num_brought));
  }
  for (size_t choice = 0; choice < num_generated.size(); ++choice) {
    Sequence& sequence = request.sequences.emplace_back();
    sequence.choice = static_cast<int>(choice);
    for (size_t i = 0; i < num_generated[choice]; ++i) {
      sequence.generated.push_back(static_cast<uint32_t>(2'000'000'000 - i));
      if (num_top >= 0 && i >= num_brought)
        sequence.logprobs.push_back(LogprobsAt(static_cast<int>(choice), i, num_top));
    }
    sequence.finish_reason = proto::FINISH_REASON_LENGTH;
  }
  return request;
}

TEST(TokenMessagesTest, ATokenComesWithItsOwnLogprobs) {
  const Request request = MakeRequest({10, 5}, /*num_brought=*/0, /*num_top=*/2);
  const proto::SequenceTokens tokens = TokensOf(request, request.sequences[1], 3, 5);
  EXPECT_EQ(tokens.choice(), 1u);
  EXPECT_EQ(tokens.first_position(), 3u);
  EXPECT_THAT(tokens.tokens(), ElementsAre(1'999'999'997, 1'999'999'996));
  EXPECT_THAT(tokens.logprobs(), ElementsAre(LogprobsAt(1, 3, 2).logprob, LogprobsAt(1, 4, 2).logprob));
  ASSERT_THAT(tokens.top_logprobs(), SizeIs(2));
  EXPECT_THAT(tokens.top_logprobs(0).tokens(), ElementsAre(129'000, 129'001));
  EXPECT_EQ(tokens.finish_reason(), proto::FINISH_REASON_LENGTH);
  EXPECT_EQ(TokensOf(request, request.sequences[1], 3, 4).finish_reason(), proto::FINISH_REASON_UNSPECIFIED);
}

TEST(TokenMessagesTest, NobodyIsToldWhatHeDidNotAskFor) {
  const Request request = MakeRequest({3}, 0, /*num_top=*/-1);
  const proto::SequenceTokens tokens = TokensOf(request, request.sequences[0], 0, 3);
  EXPECT_THAT(tokens.logprobs(), IsEmpty());
  EXPECT_THAT(tokens.top_logprobs(), IsEmpty());
  const Request without_top = MakeRequest({3}, 0, /*num_top=*/0);
  EXPECT_THAT(TokensOf(without_top, without_top.sequences[0], 0, 3).logprobs(), SizeIs(3));
  EXPECT_THAT(TokensOf(without_top, without_top.sequences[0], 0, 3).top_logprobs(), IsEmpty());
}

TEST(TokenMessagesTest, ThePromptsLogprobsComeWithTheFirstTokenOfChoiceZero) {
  Request request = MakeRequest({5, 5}, 0, /*num_top=*/0);
  request.generate.prompt_tokens = {1, 2, 3};
  request.generate.head.mutable_sampling()->set_prompt_logprobs_begin(1);
  request.prompt_logprobs.add_logprobs(-1);
  request.prompt_logprobs.add_logprobs(-2);
  EXPECT_THAT(TokensOf(request, request.sequences[0], 0, 1).prompt_logprobs().logprobs(), ElementsAre(-1, -2));
  request.num_cached_prompt_tokens = 128;
  EXPECT_EQ(TokensOf(request, request.sequences[0], 0, 1).num_cached_prompt_tokens(), 128u);
  EXPECT_EQ(TokensOf(request, request.sequences[0], 1, 2).num_cached_prompt_tokens(), 0u);
  EXPECT_EQ(TokensOf(request, request.sequences[1], 0, 1).num_cached_prompt_tokens(), 128u)
      << "with each choice's first";
  EXPECT_FALSE(TokensOf(request, request.sequences[0], 1, 2).has_prompt_logprobs());
  EXPECT_FALSE(TokensOf(request, request.sequences[1], 0, 1).has_prompt_logprobs());
  const std::vector<proto::SequenceTokens> again = CutIntoMessages(AllTokensOf(request, request.sequences[0]), 0);
  ASSERT_THAT(again, SizeIs(2));
  EXPECT_THAT(again[0].tokens(), SizeIs(1));
  EXPECT_TRUE(again[0].has_prompt_logprobs());
  EXPECT_THAT(again[1].tokens(), SizeIs(4));
  EXPECT_FALSE(again[1].has_prompt_logprobs());
  for (const proto::SequenceTokens& piece : CutIntoMessages(AllTokensOf(request, request.sequences[0]), 2)) {
    EXPECT_FALSE(piece.has_prompt_logprobs()) << "who has a token has the prompt's, too";
  }
}

TEST(TokenMessagesTest, LongAnswersAreCutIntoMessagesThatSayEachTokenOnce) {
  for (const int num_top : {-1, 0, 1, 20}) {
    const Request request = MakeRequest({100'000, 7, 60'000}, 0, num_top);
    const std::vector<proto::SequenceTokens> choices = AllTokensOf(request);
    ASSERT_THAT(choices, SizeIs(3));
    for (const uint32_t position : {0u, 5u, 59'999u}) {
      for (const proto::SequenceTokens& choice : choices) {
        const std::vector<uint32_t>& generated = request.sequences[choice.choice()].generated;
        size_t next = std::min<size_t>(position, generated.size());
        for (const proto::SequenceTokens& piece : CutIntoMessages(choice, position)) {
          EXPECT_LE(piece.ByteSizeLong(), kMessageBytesMax) << num_top;
          EXPECT_EQ(piece.choice(), choice.choice());
          ASSERT_EQ(piece.first_position(), next);
          EXPECT_EQ(piece.logprobs_size(), num_top >= 0 ? piece.tokens_size() : 0);
          EXPECT_EQ(piece.top_logprobs_size(), num_top > 0 ? piece.tokens_size() : 0);
          for (int i = 0; i < piece.tokens_size(); ++i, ++next) {
            ASSERT_EQ(piece.tokens(i), generated[next]);
            if (num_top < 0) continue;
            ASSERT_EQ(piece.logprobs(i), LogprobsAt(static_cast<int>(choice.choice()), next, num_top).logprob);
          }
          EXPECT_EQ(piece.finish_reason() == proto::FINISH_REASON_LENGTH, next == generated.size());
        }
        EXPECT_EQ(next, generated.size());
      }
    }
  }
}

TEST(TokenMessagesTest, WhatTheRouterBroughtIsNotToldBack) {
  const Request request = MakeRequest({10}, /*num_brought=*/6, /*num_top=*/1);
  const auto choices = AllTokensOf(request);
  ASSERT_THAT(choices, SizeIs(1));
  const proto::SequenceTokens& tokens = choices[0];
  EXPECT_EQ(tokens.first_position(), 6u);
  EXPECT_THAT(tokens.tokens(), SizeIs(4));
  EXPECT_EQ(tokens.logprobs(0), LogprobsAt(0, 6, 1).logprob);
}

}  // namespace
}  // namespace tandem::decode

// Proves that the choices of a request are what requests of their own would be, whatever happens to their pages: shared
// prompts, famine, retries, ends and cancels of single choices; and that everything is given back.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "decode_worker/page_sharing.h"
#include "decode_worker/testing/engine_rig.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(EngineChoicesTest, EachChoiceIsTheOraclesForPromptsOfEveryLengthAroundAPage) {
  EngineRig rig(64, 16);
  std::vector<RequestKey> keys;
  for (const int length : {1, 2, 63, 64, 65, 127, 128, 129, 200}) {
    keys.push_back(rig.Submit(EngineRig::MakeRequest(length, length, 20, 3)));
  }
  rig.Settle();
  for (const RequestKey& key : keys) {
    rig.ExpectFinished(key);
    EXPECT_NE(rig.answer(key).choices[0].tokens, rig.answer(key).choices[1].tokens) << "noise of their own";
  }
  EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineChoicesTest, TheFirstChoiceIsTheAnswerOfARequestWithOne) {
  EngineRig rig(64, 16);
  const RequestKey several = rig.Submit(EngineRig::MakeRequest(5, 100, 30, 4));
  rig.Settle();
  GenerateRequest single = EngineRig::MakeRequest(5, 100, 30);
  single.key.attempt = 2;
  const RequestKey one = rig.Submit(single);
  rig.Settle();
  EXPECT_EQ(rig.answer(several).choices[0].tokens, rig.answer(one).choices[0].tokens);
}

TEST(EngineChoicesTest, GreedyChoicesAreAllAlike) {
  EngineRig rig(64, 16);
  GenerateRequest request = EngineRig::MakeRequest(5, 100, 30, 3);
  request.head.mutable_sampling()->set_temperature(0);
  const RequestKey key = rig.Submit(request);
  rig.Settle();
  rig.ExpectFinished(key);
  EXPECT_EQ(rig.answer(key).choices[0].tokens, rig.answer(key).choices[2].tokens);
}

TEST(EngineChoicesTest, PagesOfThePromptAreSharedButItsLast) {
  for (const int length : {64, 65, 128, 150}) {
    EngineRig rig(64, 16);
    const RequestKey key = rig.Submit(EngineRig::MakeEndless(1, length, 20, 4));
    rig.RunTo(key, 3, 2);
    const int num_own_pages = kvcache::PagesForTokens(length + 1) - SharedPages(length);
    EXPECT_EQ(rig.engine().pages().num_used(), SharedPages(length) + 4 * num_own_pages) << length;
    rig.Settle();
    rig.ExpectFinished(key);
    rig.ExpectNothingHeld();
  }
}

TEST(EngineChoicesTest, APageFamineRetractsSingleChoicesAndNobodysTokensChange) {
  EngineRig rig(8, 8);
  std::vector<RequestKey> keys;
  for (int id = 1; id <= 3; ++id) keys.push_back(rig.Submit(EngineRig::MakeEndless(id, 90 + 20 * id, 150, 3)));
  rig.Settle();
  for (const RequestKey& key : keys) rig.ExpectFinished(key);
  EXPECT_GT(rig.engine().counters().retractions, 2);
  EXPECT_GT(rig.engine().counters().tokens_replayed, 0);
  EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineChoicesTest, ChoicesThatFitOnlyOneAtATimeAreServedOneAfterAnother) {
  EngineRig rig(5, 8);  // 320 tokens: one choice at its end takes every page
  const RequestKey key = rig.Submit(EngineRig::MakeEndless(1, 100, 500, 3));
  rig.Settle();
  rig.ExpectFinished(key);
  EXPECT_EQ(rig.answer(key).choices[2].tokens.size(), 220u);
  EXPECT_EQ(rig.answer(key).choices[2].finish_reason, proto::FINISH_REASON_LENGTH);
  // Prefilled again for those that had to wait, never to sample again.
  ASSERT_GE(rig.prefill().generated_of_starts().size(), 3u);
  EXPECT_THAT(rig.prefill().generated_of_starts()[0], IsEmpty());
  EXPECT_FALSE(rig.prefill().generated_of_starts()[1].empty());
  EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineChoicesTest, PagesOfAllChoicesAreReservedOrNoneAndNobodyOvertakes) {
  EngineRig rig(6, 8);
  rig.prefill().HoldAnnouncements(true);
  const RequestKey first = rig.Submit(EngineRig::MakeEndless(1, 100, 5, 1));   // 2 pages
  const RequestKey second = rig.Submit(EngineRig::MakeEndless(2, 100, 5, 4));  // 1 + 4 pages, 4 are free
  const RequestKey third = rig.Submit(EngineRig::MakeEndless(3, 10, 5, 1));
  rig.Settle();
  EXPECT_EQ(rig.engine().pages().num_used(), 2);
  EXPECT_EQ(rig.engine().load().waiting_requests(), 2u);
  rig.prefill().HoldAnnouncements(false);
  rig.Settle();
  for (const RequestKey& key : {first, second, third}) rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
}

TEST(EngineChoicesTest, AChoiceThatEndsGivesBackItsPagesAtOnce) {
  EngineRig rig(64, 16);
  GenerateRequest request = EngineRig::MakeEndless(1, 100, 60, 3);
  const RequestKey key = rig.Submit(request);
  rig.RunTo(key, 2, 30);
  const int64_t before = rig.engine().pages().num_used();
  rig.CancelChoice(key, 1);
  EXPECT_LT(rig.engine().pages().num_used(), before);
  const size_t num_tokens = rig.answer(key).choices[1].tokens.size();
  rig.Settle();
  rig.ExpectChoice(key, 0);
  rig.ExpectChoice(key, 2);
  rig.ExpectEnded(key);
  EXPECT_EQ(rig.answer(key).choices[1].tokens.size(), num_tokens);
  rig.ExpectNothingHeld();
}

TEST(EngineChoicesTest, AChoiceIsCancelledInEveryPhaseAndTheOthersGoOn) {
  for (uint32_t choice = 0; choice < 3; ++choice) {
    EngineRig rig(8, 4);
    rig.prefill().HoldAnnouncements(true);
    const RequestKey transferring = rig.Submit(EngineRig::MakeRequest(1, 100, 40, 3));
    const RequestKey waiting = rig.Submit(EngineRig::MakeRequest(2, 100, 40, 3));
    rig.Settle();
    ASSERT_EQ(rig.engine().load().waiting_requests(), 1u);
    for (const RequestKey& key : {transferring, waiting}) {
      rig.CancelChoice(key, choice);
      rig.CancelChoice(key, choice);  // no error, nothing answers
      rig.CancelChoice(key, 7);       // the request does not have it
    }
    rig.CancelChoice({.router_incarnation = EngineRig::kRouter, .request_id = 99, .attempt = 1}, 0);
    rig.prefill().HoldAnnouncements(false);
    rig.Settle();
    for (const RequestKey& key : {transferring, waiting}) {
      for (uint32_t other = 0; other < 3; ++other) {
        if (other != choice) rig.ExpectChoice(key, other);
      }
      rig.ExpectEnded(key);
    }
    EXPECT_LE(rig.answer(transferring).choices[choice].tokens.size(), 1u);
    EXPECT_FALSE(rig.answer(waiting).choices.contains(choice) && choice != 0);
    rig.ExpectNothingHeld();
  }
}

TEST(EngineChoicesTest, CancellingEveryChoiceEndsTheRequest) {
  EngineRig rig(64, 16);
  rig.prefill().HoldAnnouncements(true);
  const RequestKey transferring = rig.Submit(EngineRig::MakeEndless(1, 100, 200, 2));
  rig.Settle();
  for (uint32_t choice = 0; choice < 2; ++choice) rig.CancelChoice(transferring, choice);
  rig.prefill().HoldAnnouncements(false);
  rig.Settle();
  rig.ExpectEnded(transferring);
  const RequestKey running = rig.Submit(EngineRig::MakeEndless(2, 100, 200, 2));
  rig.RunTo(running, 1, 5);
  for (uint32_t choice = 0; choice < 2; ++choice) rig.CancelChoice(running, choice);
  rig.Settle();
  rig.ExpectEnded(running);
  rig.ExpectNothingHeld();
}

TEST(EngineChoicesTest, ACancelIsConfirmedOnceInEveryPhase) {
  EngineRig rig(12, 4);
  const RequestKey running = rig.Submit(EngineRig::MakeEndless(1, 60, 200, 2));
  rig.RunTo(running, 1, 3);
  rig.prefill().HoldAnnouncements(true);
  const RequestKey transferring = rig.Submit(EngineRig::MakeEndless(2, 60, 200, 2));
  rig.Settle();
  const RequestKey waiting = rig.Submit(EngineRig::MakeEndless(3, 60, 200, 2));
  rig.engine().Step();
  for (const RequestKey& key : {running, transferring, waiting}) rig.CancelRequest(key);
  rig.Settle();
  for (const RequestKey& key : {transferring, waiting}) {
    ASSERT_THAT(rig.answer(key).ended, SizeIs(1));
    EXPECT_TRUE(rig.answer(key).ended[0].is_cancelled());
  }
  EXPECT_THAT(rig.answer(running).ended, SizeIs(testing::Ge(1u)));
  rig.ExpectNothingHeld();
}

TEST(EngineChoicesTest, AFirstTokenThatEndsAChoiceLeavesTheOthers) {
  // Stops at the first token of each choice in turn, the one whose pages receive the prompt among them.
  for (uint32_t choice = 0; choice < 3; ++choice) {
    for (const int length : {64, 100}) {
      EngineRig rig(64, 16);
      GenerateRequest request = EngineRig::MakeEndless(1, length, 40, 3);
      const RequestKey probe = rig.Submit(request);
      rig.Settle();
      request.key.attempt = 2;
      request.head.mutable_stopping()->add_stop_token_ids(rig.answer(probe).choices[choice].tokens[0]);
      const RequestKey key = rig.Submit(request);
      rig.Settle();
      rig.ExpectFinished(key);
      EXPECT_THAT(rig.answer(key).choices[choice].tokens, SizeIs(1));
      EXPECT_EQ(rig.answer(key).choices[choice].finish_reason, proto::FINISH_REASON_STOP);
      rig.ExpectNothingHeld();
    }
  }
}

TEST(EngineChoicesTest, FirstTokensThatEndAllChoicesAbortTheTransfer) {
  EngineRig rig(64, 16);
  rig.prefill().HoldAnnouncements(true);
  const RequestKey key = rig.Submit(EngineRig::MakeRequest(1, 100, 1, 3));
  rig.Settle();
  rig.ExpectFinished(key);
  EXPECT_EQ(rig.engine().transfer().counters().epochs_aborted, 1);
  rig.ExpectNothingHeld();
}

TEST(EngineChoicesTest, BadBytesArePrefilledOnceMoreWithoutSampling) {
  EngineRig rig(64, 16);
  rig.prefill().CorruptNextPrompts(1);
  const RequestKey key = rig.Submit(EngineRig::MakeRequest(1, 100, 30, 3));
  rig.Settle();
  rig.ExpectFinished(key);
  EXPECT_EQ(rig.engine().counters().data_loss_retries, 1);
  EXPECT_THAT(rig.prefill().generated_of_starts(), ElementsAre(IsEmpty(), SizeIs(1)));
  rig.ExpectNothingHeld();
}

TEST(EngineChoicesTest, ATransferThatIsLostBetweenFirstTokensIsTriedAgainAndTheKnownOnesAreFacts) {
  EngineRig rig(64, 16);
  rig.prefill().SampleOnly(2);
  const RequestKey key = rig.Submit(EngineRig::MakeRequest(1, 100, 30, 3));
  rig.Settle();
  ASSERT_THAT(rig.answer(key).choices[1].tokens, SizeIs(1));
  ASSERT_THAT(rig.answer(key).choices[2].tokens, IsEmpty());
  // Prefill forgets the epoch: asked again, it knows none.
  rig.prefill().LinkDown(EngineRig::kDecode);
  rig.prefill().LinkUp(EngineRig::kDecode);
  rig.prefill().SampleOnly(3);
  rig.clock().Advance(absl::Milliseconds(1001));
  rig.Settle();
  rig.ExpectFinished(key);
  EXPECT_EQ(rig.engine().counters().stale_retries, 1);
  EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineChoicesTest, ADeadlineEndsAllChoices) {
  EngineRig rig(64, 16);
  rig.prefill().HoldAnnouncements(true);
  GenerateRequest request = EngineRig::MakeRequest(1, 100, 30, 3);
  request.head.set_remaining_time_us(1'000'000);
  const RequestKey key = rig.Submit(request);
  rig.Settle();
  rig.clock().Advance(absl::Milliseconds(1001));
  rig.Settle();
  rig.ExpectError(key, absl::StatusCode::kDeadlineExceeded);
  rig.ExpectNothingHeld();
}

// A further attempt with what the router has: of every choice another number of tokens, none of some, some ended.
TEST(EngineChoicesTest, AResumedRequestsChoicesGoOnEachWhereItWas) {
  constexpr uint32_t kChoices = 4;
  EngineRig rig(64, 16);
  GenerateRequest request = EngineRig::MakeRequest(9, 100, 40, kChoices);
  request.head.mutable_stopping()->clear_stop_token_ids();
  request.head.mutable_sampling()->set_wants_logprobs(true);
  request.head.mutable_sampling()->set_num_top_logprobs(2);
  const RequestKey whole = rig.Submit(request);
  rig.Settle();
  rig.ExpectFinished(whole);
  std::mt19937 rng(4);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::optional<std::vector<uint32_t>>> brought(kChoices);
    const uint32_t wanted = rng() % kChoices;  // at least this one
    for (uint32_t choice = 0; choice < kChoices; ++choice) {
      if (choice != wanted && rng() % 4 == 0) continue;
      const auto& tokens = rig.answer(whole).choices[choice].tokens;
      const size_t num_brought = rng() % 3 == 0 ? 0 : rng() % tokens.size();
      brought[choice].emplace(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(num_brought));
    }
    EngineRig::Bring(brought, request);
    request.key.attempt++;
    const RequestKey resumed = rig.Submit(request);
    rig.Settle();
    rig.ExpectFinished(resumed);
    rig.ExpectNothingHeld();
  }
  EXPECT_GT(rig.engine().counters().tokens_replayed, 100);
  EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
}

TEST(EngineChoicesTest, RefusesMoreChoicesThanItCanServe) {
  EngineRig rig(4, 3);
  rig.ExpectError(rig.Submit(EngineRig::MakeRequest(1, 10, 5, 4)), absl::StatusCode::kInvalidArgument,
                  "num_choices is 4, at most 3");
  rig.ExpectError(rig.Submit(EngineRig::MakeRequest(2, 150, 5, 3)), absl::StatusCode::kInvalidArgument,
                  "num_choices is 3, a prompt of 150 tokens fits the KV pool of 4 pages at most 2 times");
  GenerateRequest resumed = EngineRig::MakeRequest(3, 10, 5, 2);
  EngineRig::Bring({std::vector<uint32_t>{7}}, resumed);
  rig.ExpectError(rig.Submit(resumed), absl::StatusCode::kInvalidArgument, "resumed has 1 choices, num_choices is 2");
  EngineRig::Bring({std::nullopt, std::nullopt}, resumed);
  resumed.key.attempt++;
  rig.ExpectError(rig.Submit(resumed), absl::StatusCode::kInvalidArgument, "resumed: every choice has ended already");
  EngineRig::Bring({std::vector<uint32_t>{7}, std::vector<uint32_t>(5, 7)}, resumed);
  resumed.key.attempt++;
  rig.ExpectError(rig.Submit(resumed), absl::StatusCode::kInvalidArgument,
                  "max_new_tokens 5 leaves nothing to generate, 5 tokens are there already");
  EngineRig large(64, 200);
  large.ExpectError(large.Submit(EngineRig::MakeRequest(1, 10, 5, 129)), absl::StatusCode::kInvalidArgument,
                    "num_choices is 129, at most 128");
  large.ExpectError(large.Submit(EngineRig::MakeRequest(2, 10, 5, ~0u)), absl::StatusCode::kInvalidArgument,
                    "num_choices is 4294967295");
  const RequestKey served = rig.Submit(EngineRig::MakeRequest(4, 150, 5, 2));
  rig.Settle();
  rig.ExpectFinished(served);
  rig.ExpectNothingHeld();
}

}  // namespace
}  // namespace tandem::decode

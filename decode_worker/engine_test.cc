// Proves the life of a request in the decode engine against a prefill worker's contract: right tokens under batching,
// famine, replay and resumption; exactly one Ended, after everything is given back on both sides.
// What prefill does to it is engine_prefill_test.cc's business, routers that come and go engine_routers_test.cc's,
// readers that are slow engine_credits_test.cc's; threads, sockets and faults of several workers at once are
// //tests/sim's and the services' tests'.
#include <cstdint>
#include <utility>
#include <vector>

#include "decode_worker/testing/engine_rig.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(EngineTest, OneRequestGivesTheOraclesTokensAndEverythingBack) {
  EngineRig rig(16);
  const RequestKey key = rig.Submit(EngineRig::MakeRequest(1, 100, 40));
  rig.Settle();
  rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
  EXPECT_EQ(rig.engine().counters().requests_finished, 1);
}

TEST(EngineTest, PromptsOfEveryLengthAroundAPageAreRight) {
  EngineRig rig(16);
  std::vector<RequestKey> keys;
  for (const int length : {1, 2, 63, 64, 65, 127, 128, 129, 200}) {
    keys.push_back(rig.Submit(EngineRig::MakeRequest(length, length, 20)));
  }
  rig.Settle();
  for (const RequestKey& key : keys) rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
}

TEST(EngineTest, TheFirstTokenIsSentBeforeThePagesHaveArrived) {
  EngineRig rig(16);
  rig.prefill().HoldAnnouncements(true);
  const RequestKey key = rig.Submit(EngineRig::MakeRequest(1, 100, 40));
  rig.Settle();
  EXPECT_THAT(rig.tokens(key), SizeIs(1));
  EXPECT_THAT(rig.answer(key).ended, IsEmpty());
  rig.prefill().HoldAnnouncements(false);
  rig.Settle();
  rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
}

TEST(EngineTest, AFirstTokenThatEndsTheRequestAbortsTheTransfer) {
  EngineRig rig(16);
  rig.prefill().HoldAnnouncements(true);
  const RequestKey key = rig.Submit(EngineRig::MakeRequest(1, 100, 1));
  rig.Settle();
  rig.ExpectFinished(key);
  EXPECT_EQ(rig.answer(key).choices[0].finish_reason, proto::FINISH_REASON_LENGTH);
  EXPECT_EQ(rig.engine().transfer().counters().epochs_aborted, 1);
  rig.ExpectNothingHeld();
}

TEST(EngineTest, TheContextsEndFinishesByLength) {
  EngineRig rig(2);  // 128 tokens
  const RequestKey key = rig.Submit(EngineRig::Greedy(EngineRig::MakeRequest(1, 120, 500)));
  rig.Settle();
  rig.ExpectFinished(key);
  EXPECT_LE(rig.tokens(key).size(), 8u);
  rig.ExpectNothingHeld();
}

TEST(EngineTest, PageFamineRetractsTheYoungestAndNobodysTokensChange) {
  EngineRig rig(5, 4);
  std::vector<RequestKey> keys;
  for (int id = 1; id <= 4; ++id) keys.push_back(rig.Submit(EngineRig::MakeEndless(id, 58 + id, 200)));
  rig.Settle();
  for (const RequestKey& key : keys) rig.ExpectFinished(key);
  EXPECT_GT(rig.engine().counters().retractions, 0);
  EXPECT_GT(rig.engine().counters().tokens_replayed, 0);
  EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineTest, ARequestResumedWithItsTokensGoesOnFromThem) {
  EngineRig rig(16);
  const RequestKey whole = rig.Submit(EngineRig::MakeRequest(5, 70, 60));
  rig.Settle();
  rig.ExpectFinished(whole);
  std::vector<uint32_t> accepted = rig.tokens(whole);
  ASSERT_GT(accepted.size(), 4u) << "choose another seed";
  accepted.resize(accepted.size() / 2);
  GenerateRequest request = EngineRig::MakeRequest(5, 70, 60);
  request.key.attempt = 2;
  EngineRig::Bring({accepted}, request);
  const RequestKey resumed = rig.Submit(request);
  rig.Settle();
  rig.ExpectFinished(resumed);
  EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
  EXPECT_EQ(rig.engine().counters().tokens_replayed, static_cast<int64_t>(accepted.size()) - 1);
  rig.ExpectNothingHeld();
}

TEST(EngineTest, CancelIsConfirmedOnceInEveryPhase) {
  EngineRig rig(4, 2);
  const RequestKey running = rig.Submit(EngineRig::Greedy(EngineRig::MakeRequest(1, 60, 200)));
  rig.RunTo(running, 0, 2);
  rig.prefill().HoldAnnouncements(true);
  const RequestKey transferring = rig.Submit(EngineRig::MakeRequest(2, 60, 200));
  rig.engine().Step();
  const RequestKey waiting = rig.Submit(EngineRig::MakeRequest(3, 60, 200));
  rig.engine().Step();
  for (const RequestKey& key : {running, transferring, waiting}) {
    rig.CancelRequest(key);
    rig.CancelRequest(key);
  }
  rig.Settle();
  for (const RequestKey& key : {running, transferring, waiting}) {
    ASSERT_FALSE(rig.answer(key).ended.empty());
    EXPECT_TRUE(rig.answer(key).ended[0].is_cancelled());
    for (const proto::Ended& ended : rig.answer(key).ended) EXPECT_TRUE(ended.is_cancelled());
  }
  rig.ExpectNothingHeld();
}

TEST(EngineTest, ACancelThatOvertakesItsGenerateIsRemembered) {
  EngineRig rig(16);
  const RequestKey key{.router_incarnation = EngineRig::kRouter, .request_id = 9, .attempt = 1};
  rig.CancelRequest(key);
  ASSERT_THAT(rig.answer(key).ended, SizeIs(1));
  rig.Submit(EngineRig::MakeRequest(9, 10, 5));
  rig.Settle();
  EXPECT_THAT(rig.answer(key).ended, SizeIs(1));
  EXPECT_THAT(rig.tokens(key), IsEmpty());
  rig.ExpectNothingHeld();
}

TEST(EngineTest, ALaterAttemptEndsTheEarlierOne) {
  EngineRig rig(16);
  rig.prefill().HoldAnnouncements(true);
  GenerateRequest request = EngineRig::MakeRequest(1, 80, 10);
  const RequestKey first = rig.Submit(request);
  rig.engine().Step();
  request.key.attempt = 2;
  const RequestKey second = rig.Submit(request);
  request.key.attempt = 0;
  const RequestKey stale = rig.Submit(request);
  rig.prefill().HoldAnnouncements(false);
  rig.Settle();
  rig.ExpectError(first, absl::StatusCode::kAborted);
  rig.ExpectError(stale, absl::StatusCode::kAborted);
  rig.ExpectFinished(second);
  rig.ExpectNothingHeld();
}

TEST(EngineTest, ADeadlineEndsARequestWhereverItIs) {
  EngineRig rig(16);
  rig.prefill().HoldAnnouncements(true);
  GenerateRequest request = EngineRig::MakeRequest(1, 80, 5);
  request.head.set_remaining_time_us(1'000'000);
  rig.Submit(request);
  rig.Settle();
  EXPECT_THAT(rig.answer(request.key).ended, IsEmpty());
  rig.Advance(absl::Milliseconds(1001));
  rig.Settle();
  rig.ExpectError(request.key, absl::StatusCode::kDeadlineExceeded);
  rig.ExpectNothingHeld();
}

TEST(EngineTest, RefusesWhatItCannotServe) {
  EngineRig rig(4);
  auto refused = [&, id = 0](std::vector<uint32_t> prompt, uint32_t max_new_tokens,
                             std::vector<uint32_t> generated = {}) mutable {
    GenerateRequest request = EngineRig::MakeRequest(++id, 0, max_new_tokens);
    request.prompt_tokens = std::move(prompt);
    EngineRig::Bring({generated}, request);
    return rig.Submit(request);
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  rig.ExpectError(refused(std::vector<uint32_t>(256, 1), 5), kInvalid, "256");  // no room for a token
  rig.ExpectError(refused({}, 5), kInvalid);                                    // no prompt
  rig.ExpectError(refused({97}, 5), kInvalid, "97");                            // outside the vocabulary
  rig.ExpectError(refused({1}, 2, {5, 6}), kInvalid);                           // nothing left to generate
  rig.ExpectError(refused({1}, 9, {500}), kInvalid, "500");
  rig.engine().Drain();
  rig.ExpectError(refused({1}, 5), absl::StatusCode::kUnavailable, "draining");
  rig.ExpectNothingHeld();
  EXPECT_EQ(rig.engine().transfer().counters().epochs_begun, 0);  // prefill has heard of none
}

TEST(EngineTest, TheLineIsBounded) {
  EngineRig rig(16, 1);
  std::vector<RequestKey> keys;
  for (int id = 1; id <= 17; ++id) keys.push_back(rig.Submit(EngineRig::MakeRequest(id, 5, 2)));
  rig.ExpectError(keys[16], absl::StatusCode::kResourceExhausted);
  rig.Settle();
  for (int i = 0; i < 16; ++i) rig.ExpectFinished(keys[i]);
  rig.ExpectNothingHeld();
}

}  // namespace
}  // namespace tandem::decode

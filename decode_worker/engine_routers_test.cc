// Proves that a router's streams may break, come back, and be overtaken, and a router be replaced, at any point: no
// token is lost or said twice, what nobody asks for any more is cancelled, and every end is kept until it is confirmed.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "decode_worker/testing/engine_rig.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/credit.h"

namespace tandem::decode {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(EngineRoutersTest, ARouterThatComesBackInTimeMissesNothing) {
  EngineRig rig(16);
  const RequestKey key = rig.Submit(EngineRig::Greedy(EngineRig::MakeRequest(1, 70, 50)));
  rig.RunTo(key, 0, 2);
  rig.tokens(key).resize(1);  // the stream swallowed the last token
  rig.engine().RouterLost(1);
  rig.Settle();  // it ends while nobody listens
  EXPECT_THAT(rig.answer(key).ended, IsEmpty());
  rig.AttachRouter(2);
  rig.Settle();
  rig.ExpectFinished(key);
  EXPECT_EQ(rig.answer(key).ended[0].number(), 1u);
  EXPECT_EQ(rig.engine().counters().reattached_routers, 1);
  EXPECT_EQ(rig.engine().counters().tokens_said_again, static_cast<int64_t>(rig.Expected(key, 0).tokens.size()) - 1);
  rig.ExpectNothingHeld();
}

TEST(EngineRoutersTest, TheStreamMayBreakAtAnyTokenAndNoneIsLostOrSentTwice) {
  for (const size_t cut_at : {0, 1, 2, 7, 19, 20}) {  // 20: after the last one
    for (const size_t swallowed : {0, 1, 3}) {        // of them, those that never arrived
      EngineRig rig(16);
      const RequestKey key = rig.Submit(EngineRig::MakeEndless(1, 70, 20));
      for (int i = 0; i < 1000 && rig.tokens(key).size() < cut_at; ++i) {
        rig.DeliverOnce();
        rig.engine().Step();
      }
      std::vector<uint32_t>& tokens = rig.tokens(key);
      ASSERT_GE(tokens.size(), cut_at);
      rig.answer(key).ended.clear();  // the end was swallowed, too
      tokens.resize(tokens.size() - std::min(swallowed, tokens.size()));
      const size_t num_received = tokens.size();
      rig.engine().RouterLost(1);
      for (int i = 0; i < 3; ++i) {
        rig.DeliverOnce();
        rig.engine().Step();
      }
      EXPECT_EQ(tokens.size(), num_received) << "nobody listens";
      rig.AttachRouter(2);
      rig.Settle();
      rig.ExpectFinished(key);
      rig.ExpectNothingHeld();
    }
  }
}

TEST(EngineRoutersTest, NothingIsSentToARouterThatHasNotNamedItsPositions) {
  EngineRig rig(16);
  rig.prefill().HoldAnnouncements(true);
  const RequestKey key = rig.Submit(EngineRig::Greedy(EngineRig::MakeRequest(1, 70, 20)));
  rig.Settle();
  const size_t num_received = rig.tokens(key).size();
  rig.OpenStream(2);
  rig.prefill().HoldAnnouncements(false);
  rig.Settle();
  EXPECT_EQ(rig.tokens(key).size(), num_received);
  EXPECT_THAT(rig.answer(key).ended, IsEmpty());
  rig.AttachRouter(3);
  rig.Settle();
  rig.ExpectFinished(key);
}

TEST(EngineRoutersTest, WhatAReturningRouterDoesNotNameIsCancelledButNotWhatCameOnItsNewStream) {
  EngineRig rig(16);
  rig.prefill().HoldAnnouncements(true);
  const RequestKey given_up = rig.Submit(EngineRig::MakeEndless(1, 70, 20));
  const RequestKey kept = rig.Submit(EngineRig::MakeEndless(2, 40, 20));
  rig.Settle();
  rig.engine().RouterLost(1);
  rig.OpenStream(2);
  // Overtakes the positions, on the other connection.
  const RequestKey newer = rig.Submit(EngineRig::MakeEndless(3, 30, 20));
  rig.SayPositions(2, {kept});
  rig.prefill().HoldAnnouncements(false);
  rig.Settle();
  ASSERT_THAT(rig.answer(given_up).ended, SizeIs(1));
  EXPECT_TRUE(rig.answer(given_up).ended[0].is_cancelled());
  rig.ExpectFinished(kept);
  rig.ExpectFinished(newer);
  rig.ExpectNothingHeld();
}

TEST(EngineRoutersTest, WhatARequestGeneratedBeforeThePositionsThatItOvertookIsSaidOnceTheyHaveCome) {
  EngineRig rig(16);
  rig.engine().RouterLost(1);
  rig.OpenStream(2);
  const RequestKey ended = rig.Submit(EngineRig::MakeEndless(1, 70, 1));
  GenerateRequest bounded = EngineRig::MakeEndless(2, 30, 20);
  bounded.head.set_credit_bytes(4 * proto::kTokenCreditBytes);
  const RequestKey living = rig.Submit(bounded);
  const RequestKey refused = rig.Submit(EngineRig::MakeEndless(3, 0, 20));
  rig.Settle();
  for (const RequestKey& key : {ended, living, refused}) {
    EXPECT_THAT(rig.tokens(key), SizeIs(0));
    EXPECT_THAT(rig.answer(key).ended, SizeIs(0));
  }
  rig.SayPositions(2, {});
  EXPECT_THAT(rig.tokens(living), SizeIs(4));
  rig.ExpectFinished(ended);
  rig.ExpectError(refused, absl::StatusCode::kInvalidArgument);
  rig.Grant(living, 1000);
  rig.Settle();
  rig.ExpectFinished(living);
  rig.ExpectNothingHeld();
}

TEST(EngineRoutersTest, ARequestThatWasLostWithItsStreamIsAnsweredAndItsLateGenerateDropped) {
  EngineRig rig(16);
  const RequestKey key{.router_incarnation = EngineRig::kRouter, .request_id = 1, .attempt = 1};
  rig.answer(key);  // the router has sent it; it is still under way
  rig.AttachRouter(2);
  rig.Settle();
  rig.ExpectError(key, absl::StatusCode::kUnavailable);
  EXPECT_EQ(rig.engine().counters().requests_not_known, 1);
  rig.Submit(EngineRig::MakeRequest(1, 70, 20));
  rig.Settle();
  EXPECT_EQ(rig.engine().counters().requests_dropped, 1);
  rig.ExpectNothingHeld();
}

TEST(EngineRoutersTest, EndsAreKeptUntilTheyAreConfirmed) {
  EngineRig rig(16);
  for (uint64_t id = 1; id <= 3; ++id) rig.Submit(EngineRig::MakeRequest(id, 10, 5));
  rig.Settle();
  EXPECT_EQ(rig.engine().num_unconfirmed_ends(), 3u);
  proto::RouterMessage message;
  message.mutable_ended_received()->set_number(2);
  rig.engine().RouterMessage(1, message);
  EXPECT_EQ(rig.engine().num_unconfirmed_ends(), 1u);
  rig.AttachRouter(2, EngineRig::kRouter + 1);  // restarted: there is nobody left to tell
  EXPECT_EQ(rig.engine().num_unconfirmed_ends(), 0u);
}

TEST(EngineRoutersTest, AnEndWhoseConfirmationWasLostIsKeptUntilItsRouterComesBackWithoutNeedOfIt) {
  EngineRig rig(16);
  rig.Submit(EngineRig::MakeRequest(1, 10, 5));
  rig.Settle();  // the router has the end
  rig.engine().RouterLost(1);
  const RequestKey swallowed = rig.Submit(EngineRig::MakeRequest(2, 10, 5));
  rig.Settle();
  EXPECT_GE(rig.engine().num_unconfirmed_ends(), 1u);
  rig.OpenStream(2);
  rig.SayPositions(2, {swallowed});
  rig.Settle();
  EXPECT_THAT(rig.answer(swallowed).ended, SizeIs(1));
  EXPECT_LE(rig.engine().num_unconfirmed_ends(), 1u) << "that of the first request";
  rig.OpenStream(3);
  rig.SayPositions(3, {});
  EXPECT_EQ(rig.engine().num_unconfirmed_ends(), 0u);
}

TEST(EngineRoutersTest, RequestsOfTwoRoutersThatAreNumberedAlikeHoldTheirOwnPages) {
  EngineRig rig(16);
  proto::Identity other;
  other.set_instance("another router");
  other.set_incarnation(EngineRig::kRouter + 1);
  other.set_role("router");
  rig.engine().RouterAttached(2, other);
  rig.SayPositions(2, {});
  const RequestKey brief = rig.Submit(EngineRig::MakeEndless(1, 70, 5));
  GenerateRequest request = EngineRig::MakeEndless(1, 100, 90);
  request.key.router_incarnation = EngineRig::kRouter + 1;
  const RequestKey lasting = rig.Submit(request);
  rig.RunTo(brief, 0, 5);
  // Whoever comes now would get the pages of the one that goes on, had the end of the other given them back.
  const RequestKey next = rig.Submit(EngineRig::MakeEndless(2, 150, 60));
  rig.Settle();
  for (const RequestKey& key : {brief, lasting, next}) rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
}

TEST(EngineRoutersTest, ARouterThatIsGoneLosesItsRequests) {
  EngineRig rig(16);
  rig.prefill().HoldAnnouncements(true);
  const RequestKey key = rig.Submit(EngineRig::MakeRequest(1, 70, 50));
  rig.Settle();
  rig.engine().RouterLost(1);
  rig.Advance(absl::Milliseconds(1999));
  EXPECT_FALSE(rig.engine().IsAtRest());
  rig.Advance(absl::Milliseconds(2));
  rig.Settle();
  rig.ExpectNothingHeld();
  EXPECT_THAT(rig.answer(key).ended, IsEmpty());
  EXPECT_EQ(rig.engine().counters().requests_cancelled, 1);
  EXPECT_THAT(rig.linked(), IsEmpty());
}

TEST(EngineRoutersTest, ARestartedRouterLosesTheOldOnesRequestsAtOnce) {
  EngineRig rig(16);
  rig.prefill().HoldAnnouncements(true);
  rig.Submit(EngineRig::MakeRequest(1, 70, 50));
  rig.Settle();
  rig.AttachRouter(2, EngineRig::kRouter + 1);
  rig.Settle();
  rig.ExpectNothingHeld();
}

}  // namespace
}  // namespace tandem::decode

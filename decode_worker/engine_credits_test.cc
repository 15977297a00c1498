// Proves flow control by credits: no token is made that its reader has no room for, a reader without room for long
// gives its pages to others, and every reader goes on exactly where it was.
#include <cstdint>
#include <vector>

#include "decode_worker/testing/engine_rig.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/credit.h"

namespace tandem::decode {
namespace {

using ::testing::SizeIs;

GenerateRequest WithCredit(uint64_t num_tokens, GenerateRequest request) {
  request.head.set_credit_bytes(num_tokens * proto::kTokenCreditBytes);
  return request;
}

TEST(EngineCreditsTest, NoTokenIsMadeThatTheReaderHasNoRoomFor) {
  EngineRig rig(16);
  const RequestKey slow = rig.Submit(WithCredit(10, EngineRig::MakeEndless(1, 70, 50)));
  const RequestKey other = rig.Submit(EngineRig::MakeEndless(2, 40, 50));
  rig.Settle();
  EXPECT_THAT(rig.tokens(slow), SizeIs(10));
  rig.ExpectFinished(other);
  EXPECT_EQ(rig.engine().num_without_credit(), 1);
  rig.Grant(slow, 9);  // late, or repeated: never less than before
  rig.Settle();
  EXPECT_THAT(rig.tokens(slow), SizeIs(10));
  rig.Grant(slow, 13);
  rig.Settle();
  EXPECT_THAT(rig.tokens(slow), SizeIs(13));
  rig.Grant(slow, 1000);
  rig.Settle();
  rig.ExpectFinished(slow);
  EXPECT_EQ(rig.engine().counters().credit_retractions, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineCreditsTest, AReaderWithoutRoomForLongLosesItsPagesAndGoesOnExactlyWhenItReads) {
  EngineRig rig(16);
  const RequestKey key = rig.Submit(WithCredit(10, EngineRig::MakeEndless(1, 70, 50)));
  rig.Settle();
  rig.Advance(absl::Milliseconds(1999));
  EXPECT_GT(rig.engine().pages().num_used(), 0);
  rig.Advance(absl::Milliseconds(2));
  EXPECT_EQ(rig.engine().pages().num_used(), 0);
  EXPECT_EQ(rig.engine().num_parked(), 1);
  EXPECT_EQ(rig.engine().counters().credit_retractions, 1);
  EXPECT_EQ(rig.engine().counters().retractions, 0);
  EXPECT_FALSE(rig.engine().IsAtRest()) << "it lives";
  rig.Grant(key, 12);  // not worth a prefill
  rig.Settle();
  EXPECT_EQ(rig.engine().num_parked(), 1);
  rig.Grant(key, 15);
  rig.Settle();
  EXPECT_EQ(rig.engine().num_parked(), 0);
  EXPECT_THAT(rig.tokens(key), SizeIs(15));
  rig.Grant(key, 1000);
  rig.Settle();
  rig.ExpectFinished(key);
  EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineCreditsTest, AParkedRequestCanBeCancelledAndRunsOutOfTime) {
  EngineRig rig(16);
  const RequestKey cancelled = rig.Submit(WithCredit(4, EngineRig::MakeEndless(1, 70, 50)));
  const RequestKey kept = rig.Submit(WithCredit(4, EngineRig::MakeEndless(2, 30, 50)));
  GenerateRequest bounded = WithCredit(4, EngineRig::MakeEndless(3, 30, 50));
  bounded.head.set_remaining_time_us(10'000'000);
  const RequestKey late = rig.Submit(bounded);
  rig.Settle();
  rig.Advance(absl::Seconds(3));
  EXPECT_EQ(rig.engine().num_parked(), 3);
  rig.CancelRequest(cancelled);
  rig.Settle();
  ASSERT_THAT(rig.answer(cancelled).ended, SizeIs(1));
  EXPECT_TRUE(rig.answer(cancelled).ended[0].is_cancelled());
  EXPECT_EQ(rig.engine().num_parked(), 2);
  rig.Advance(absl::Seconds(8));
  rig.ExpectError(late, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(rig.engine().num_parked(), 1);
  rig.Grant(kept, 1000);
  rig.Settle();
  rig.ExpectFinished(kept);
  rig.ExpectNothingHeld();
}

TEST(EngineCreditsTest, CreditThatWasLostWithTheStreamComesWithThePosition) {
  EngineRig rig(16);
  const RequestKey key = rig.Submit(WithCredit(4, EngineRig::MakeEndless(1, 70, 50)));
  rig.Settle();
  EXPECT_THAT(rig.tokens(key), SizeIs(4));
  rig.OpenStream(2);
  proto::RouterMessage message;
  proto::Reattach::Position& position = *message.mutable_reattach()->add_positions();
  *position.mutable_key() = key.ToProto();
  position.set_next_position(4);
  position.set_granted_bytes(1000 * proto::kTokenCreditBytes);
  message.mutable_reattach()->set_is_last(true);
  rig.engine().RouterMessage(2, message);
  rig.Settle();
  rig.ExpectFinished(key);
}

TEST(EngineCreditsTest, ManySlowReadersDoNotKeepThePoolFromOthers) {
  EngineRig rig(10);
  std::vector<RequestKey> slow;
  for (uint64_t id = 1; id <= 6; ++id) slow.push_back(rig.Submit(WithCredit(4, EngineRig::MakeEndless(id, 60, 50))));
  rig.Settle();
  const RequestKey quick = rig.Submit(EngineRig::MakeEndless(7, 250, 60));  // wants half of the pool
  rig.Settle();
  rig.Advance(absl::Seconds(3));
  rig.ExpectFinished(quick);
  for (const RequestKey& key : slow) {
    EXPECT_THAT(rig.tokens(key), SizeIs(4));
    rig.Grant(key, 1000);
  }
  rig.Settle();
  for (const RequestKey& key : slow) rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
}

}  // namespace
}  // namespace tandem::decode

// Proves what the decode engine makes of a prefill worker's failures: one more try where the contract allows it, else
// the error of that request alone; and that routers hear which peers can be used.
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "decode_worker/testing/engine_rig.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(EnginePrefillTest, BadBytesArePrefilledOnceMoreAndCounted) {
  EngineRig rig(16);
  rig.prefill().CorruptNextPrompts(1);  // the refetch, over the other lane, reads the same bad bytes
  const RequestKey key = rig.Submit(EngineRig::MakeRequest(1, 100, 30));
  rig.Settle();
  rig.ExpectFinished(key);
  EXPECT_EQ(rig.engine().counters().data_loss_retries, 1);
  EXPECT_EQ(rig.engine().transfer().counters().refetched_pages, 1);
  // The first token of the first try was a fact: the second prefill drew none.
  EXPECT_THAT(rig.prefill().generated_of_starts(), ElementsAre(IsEmpty(), SizeIs(1)));
  rig.ExpectNothingHeld();
}

TEST(EnginePrefillTest, AStaleEpochIsTriedAgainOnceAndOnlyOnce) {
  EngineRig rig(16);
  rig.prefill().RefuseNext(absl::AbortedError("epoch is gone"));
  const RequestKey lucky = rig.Submit(EngineRig::MakeRequest(1, 100, 30));
  rig.Settle();
  rig.ExpectFinished(lucky);
  EXPECT_EQ(rig.engine().counters().stale_retries, 1);
  rig.prefill().RefuseNext(absl::AbortedError("epoch is gone"));
  rig.prefill().RefuseNext(absl::AbortedError("epoch is gone"));
  const RequestKey unlucky = rig.Submit(EngineRig::MakeRequest(2, 100, 30));
  rig.Settle();
  rig.ExpectError(unlucky, absl::StatusCode::kAborted);
  rig.ExpectNothingHeld();
}

TEST(EnginePrefillTest, PrefillsRefusalReachesTheRouter) {
  EngineRig rig(16);
  rig.prefill().RefuseNext(absl::ResourceExhaustedError("prompts in line: 8, at most 8"));
  const RequestKey key = rig.Submit(EngineRig::MakeRequest(1, 100, 30));
  rig.Settle();
  rig.ExpectError(key, absl::StatusCode::kResourceExhausted);
  rig.ExpectNothingHeld();
}

TEST(EnginePrefillTest, ALostPeerEndsItsTransfersAndLeavesRunningSequencesAlone) {
  EngineRig rig(16);
  const RequestKey running = rig.Submit(EngineRig::Greedy(EngineRig::MakeEndless(1, 100, 60)));
  rig.RunTo(running, 0, 3);
  rig.prefill().HoldAnnouncements(true);
  const RequestKey transferring = rig.Submit(EngineRig::MakeRequest(2, 100, 60));
  rig.engine().Step();
  rig.DeliverOnce();
  rig.CutLink(absl::UnavailableError("silent for 750 ms"));
  rig.Settle();
  rig.ExpectError(transferring, absl::StatusCode::kUnavailable);
  rig.ExpectFinished(running);
  const RequestKey too_late = rig.Submit(EngineRig::MakeRequest(3, 10, 5));
  rig.Settle();
  rig.ExpectError(too_late, absl::StatusCode::kUnavailable);
  EXPECT_FALSE(rig.peer_statuses().back().is_usable());
  rig.Advance(absl::Seconds(3));  // the lease at prefill
  rig.ExpectNothingHeld();
}

TEST(EnginePrefillTest, PagesOfRequestsWhosePeerDiesComeBack500Times) {
  EngineRig rig(16);
  rig.prefill().HoldAnnouncements(true);
  for (uint64_t round = 0; round < 500; ++round) {
    const RequestKey first = rig.Submit(EngineRig::MakeEndless(2 * round + 1, 40, 20));
    const RequestKey second = rig.Submit(EngineRig::MakeEndless(2 * round + 2, 90, 20));
    rig.engine().Step();
    if (round % 2 == 0) rig.Settle();  // the first tokens are there, the pages are not
    ASSERT_GT(rig.engine().transfer().ledger().held_pages, 0);
    rig.CutLink(absl::UnavailableError("killed"));
    rig.Settle();
    for (const RequestKey& key : {first, second}) rig.ExpectError(key, absl::StatusCode::kUnavailable, "killed");
    ASSERT_EQ(rig.engine().pages().num_used(), 0) << "round " << round;
    rig.BringLinkUp();
  }
  rig.prefill().HoldAnnouncements(false);
  const RequestKey last = rig.Submit(EngineRig::MakeRequest(5000, 90, 20));
  rig.Settle();
  rig.ExpectFinished(last);
  rig.ExpectNothingHeld();
}

TEST(EnginePrefillTest, RoutersNamePrefillPeersAndHearOfThem) {
  EngineRig rig(16);
  EXPECT_THAT(rig.linked(), ElementsAre(EngineRig::kPeer));
  ASSERT_THAT(rig.peer_statuses(), SizeIs(1));
  EXPECT_TRUE(rig.peer_statuses()[0].is_usable());
  EXPECT_EQ(rig.peer_statuses()[0].lane(), "loopback");
  EXPECT_THAT(rig.engine().Describe(), HasSubstr(absl::StrCat(EngineRig::kPeer, " yes loopback")));
  rig.AttachRouter(2);  // a new stream hears of everything again
  EXPECT_THAT(rig.peer_statuses(), SizeIs(2));
}

}  // namespace
}  // namespace tandem::decode

// Proves the engine with HiSparse, on a model whose text depends on every record that it reads through device buffers:
// the oracle's answers whatever leaves its buffer or is retracted meanwhile, prompts far larger than the device pool,
// and that both pools are counted and empty at rest.
#include <vector>

#include "decode_worker/testing/engine_rig.h"

namespace tandem::decode {
namespace {

// One kept page: a buffer takes two device pages.
constexpr int kOneBuffer = 2;

sim::HiSparseOptions Buffers(int num_device_pages, int num_kept_pages_max = 1) {
  return {.num_device_pages = num_device_pages, .num_kept_pages_max = num_kept_pages_max};
}

TEST(EngineHiSparseTest, APromptLargerThanTheDevicePoolIsAnswered) {
  EngineRig rig(16, 4, 1024, Buffers(kOneBuffer));
  const RequestKey key = rig.Submit(EngineRig::MakeEndless(1, 700, 80));
  rig.Settle();
  rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
}

TEST(EngineHiSparseTest, ShortAndLongRequestsGiveTheOraclesAnswersTogether) {
  EngineRig rig(40, 8, 640, Buffers(12, 2));
  std::vector<RequestKey> keys;
  for (const int num_prompt_tokens : {6, 300, 64, 500, 1, 130, 65}) {
    keys.push_back(rig.Submit(EngineRig::MakeRequest(keys.size() + 1, num_prompt_tokens, 70)));
  }
  rig.Settle();
  for (const RequestKey& key : keys) rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
}

// Two device pages fewer than both take once they have grown.
TEST(EngineHiSparseTest, TheYoungerLeavesItsBufferAndComputesNothingAgain) {
  EngineRig rig(20, 8, 640, Buffers(6, 4));
  const RequestKey older = rig.Submit(EngineRig::MakeEndless(1, 60, 200));
  const RequestKey younger = rig.Submit(EngineRig::MakeEndless(2, 60, 100));
  rig.Settle();
  rig.ExpectFinished(older);
  rig.ExpectFinished(younger);
  EXPECT_GT(rig.engine().counters().swap_outs, 0);
  EXPECT_EQ(rig.engine().counters().retractions, 0);
  EXPECT_EQ(rig.engine().counters().tokens_replayed, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineHiSparseTest, ARetractedRequestWithSwappedInPagesGoesOnExactly) {
  EngineRig rig(6, 8, 384, Buffers(8, 2));
  const RequestKey older = rig.Submit(EngineRig::MakeEndless(1, 100, 200));
  const RequestKey younger = rig.Submit(EngineRig::MakeEndless(2, 90, 200));
  rig.Settle();
  rig.ExpectFinished(older);
  rig.ExpectFinished(younger);
  EXPECT_GT(rig.engine().counters().retractions, 0) << "host pages ran out";
  EXPECT_GT(rig.engine().counters().tokens_replayed, 0);
  EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineHiSparseTest, ChoicesShareHostPagesAndHaveBuffersOfTheirOwn) {
  EngineRig rig(30, 8, 640, Buffers(7, 2));
  const RequestKey key = rig.Submit(EngineRig::MakeRequest(3, 300, 60, 3));
  rig.Settle();
  rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
}

TEST(EngineHiSparseTest, ChoicesThatDoNotFitTheDeviceTogetherTakeTurns) {
  EngineRig rig(30, 8, 640, Buffers(3, 2));
  const RequestKey key = rig.Submit(EngineRig::MakeEndless(3, 200, 40, 4));
  rig.Settle();
  rig.ExpectFinished(key);
  rig.ExpectNothingHeld();
}

TEST(EngineHiSparseTest, OnlySoManyAreAdmittedAsTheDeviceHasBuffersFor) {
  EngineRig rig(40, 8, 640, Buffers(3 * kOneBuffer));
  std::vector<RequestKey> keys;
  for (uint64_t id = 1; id <= 5; ++id) keys.push_back(rig.Submit(EngineRig::MakeEndless(id, 200, 50)));
  rig.RunTo(keys[2], 0, 5);
  EXPECT_EQ(rig.engine().load().running_sequences(), 3u);
  EXPECT_EQ(rig.engine().load().waiting_requests(), 2u);
  EXPECT_EQ(rig.engine().device_pages().num_free(), 0);
  EXPECT_EQ(rig.engine().load().device_pages_used(), 6u);
  EXPECT_EQ(rig.engine().load().device_pages_total(), 6u);
  EXPECT_GT(rig.engine().pages().num_free(), 20);
  EXPECT_THAT(rig.engine().Describe(), ::testing::HasSubstr("hisparse: 6 of 6 device pages"));
  rig.Settle();
  for (const RequestKey& key : keys) rig.ExpectFinished(key);
  EXPECT_EQ(rig.engine().counters().swap_outs, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineHiSparseTest, ResumedRequestsReplayThroughTheBuffers) {
  EngineRig rig(20, 8, 640, Buffers(4, 1));
  rig.ExpectResumesAt(EngineRig::MakeEndless(5, 200, 120), {1, 2, 40, 70, -1});
}

TEST(EngineHiSparseTest, CancelledRequestsGiveBothPoolsBack) {
  EngineRig rig(40, 8, 640, Buffers(8));
  std::vector<RequestKey> keys;
  for (uint64_t id = 1; id <= 4; ++id) keys.push_back(rig.Submit(EngineRig::MakeEndless(id, 200, 400)));
  rig.RunTo(keys[3], 0, 20);
  for (const RequestKey& key : keys) rig.CancelRequest(key);
  rig.Settle();
  rig.ExpectNothingHeld();
}

}  // namespace
}  // namespace tandem::decode

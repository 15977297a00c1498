// Proves retraction to the host: answers are the oracle's whoever is retracted and comes back, in whichever phase,
// with choices, device buffers, slow readers and without a prefill worker; where the host is full tokens are computed
// again; and nothing stays kept. The with_drafts form runs all of it with the MTP layer's KV and hidden states.
#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "decode_worker/testing/engine_rig.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int kRoomForAll = 64;

EngineRig MakeRig(int num_pages, int num_sequences_max, int num_kept_pages, int64_t context_length_max = 320,
                  const sim::HiSparseOptions& hisparse = {}) {
  return EngineRig(num_pages, num_sequences_max, context_length_max, RigSpeculation(), hisparse, num_kept_pages);
}

TEST(EngineRetractionTest, WhoeverIsRetractedGoesOnFromTheHostAndComputesNothingAgain) {
  EngineRig rig = MakeRig(5, 4, kRoomForAll);
  std::vector<RequestKey> keys;
  for (int id = 1; id <= 4; ++id) keys.push_back(rig.Submit(EngineRig::MakeEndless(id, 58 + id, 200)));
  rig.Settle();
  for (const RequestKey& key : keys) rig.ExpectFinished(key);
  const EngineCounters& counters = rig.engine().counters();
  EXPECT_GT(counters.kept_retractions, 0);
  EXPECT_EQ(counters.kept_resumes, counters.kept_retractions);
  EXPECT_EQ(counters.replay_mismatches, 0);
  EXPECT_THAT(rig.engine().Describe(), HasSubstr("retraction to the host: 0 of 64 pages"));
  rig.ExpectNothingHeld();
}

TEST(EngineRetractionTest, WhereTheHostIsFullTokensAreComputedAgain) {
  EngineRig rig = MakeRig(5, 4, 1);
  std::vector<RequestKey> keys;
  for (int id = 1; id <= 4; ++id) keys.push_back(rig.Submit(EngineRig::MakeEndless(id, 40 + 10 * id, 200)));
  rig.Settle();
  for (const RequestKey& key : keys) rig.ExpectFinished(key);
  const EngineCounters& counters = rig.engine().counters();
  EXPECT_GT(counters.retractions, counters.kept_retractions);
  EXPECT_GT(counters.tokens_replayed, 0);
  EXPECT_EQ(counters.replay_mismatches, 0);
  rig.ExpectNothingHeld();
}

// Three prompt pages are shared and kept once, by whichever of the choices is retracted first.
TEST(EngineRetractionTest, ChoicesKeepTheirPromptOnce) {
  EngineRig rig = MakeRig(9, 8, kRoomForAll, 512);
  const RequestKey older = rig.Submit(EngineRig::MakeEndless(1, 100, 250));
  const RequestKey choices = rig.Submit(EngineRig::MakeEndless(2, 200, 100, 3));
  rig.RunTo(choices, 2, 2);
  int64_t most_kept = 0;
  while (!rig.engine().IsAtRest()) {
    rig.engine().Step();
    rig.DeliverOnce();
    most_kept = std::max(most_kept, rig.engine().retracted_pages().pages().num_used());
  }
  rig.ExpectFinished(older);
  rig.ExpectFinished(choices);
  EXPECT_GT(rig.engine().counters().kept_retractions, 1);
  EXPECT_GT(most_kept, 3);
  EXPECT_LE(most_kept, 3 + 3 * 2) << "the prompt's pages, and at most two of each choice's own";
  EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineRetractionTest, NoPrefillWorkerIsNeededToGoOn) {
  EngineRig rig = MakeRig(5, 4, kRoomForAll);
  const RequestKey older = rig.Submit(EngineRig::MakeEndless(1, 60, 250));
  const RequestKey younger = rig.Submit(EngineRig::MakeEndless(2, 60, 150));
  for (int i = 0; i < 10'000 && rig.engine().counters().kept_retractions == 0; ++i) {
    rig.engine().Step();
    rig.DeliverOnce();
  }
  ASSERT_GT(rig.engine().counters().kept_retractions, 0);
  rig.CutLink(absl::UnavailableError("the prefill worker is gone"));
  rig.Settle();
  rig.ExpectFinished(older);
  rig.ExpectFinished(younger);
  EXPECT_GT(rig.engine().counters().kept_resumes, 0);
}

TEST(EngineRetractionTest, ASlowReadersPagesWaitOnTheHost) {
  EngineRig rig = MakeRig(16, 8, kRoomForAll);
  GenerateRequest request = EngineRig::MakeEndless(1, 70, 50);
  request.head.set_credit_bytes(10 * proto::kTokenCreditBytes);
  const RequestKey key = rig.Submit(request);
  rig.Settle();
  rig.Advance(absl::Seconds(3));
  EXPECT_EQ(rig.engine().num_parked(), 1);
  EXPECT_EQ(rig.engine().pages().num_used(), 0);
  EXPECT_EQ(rig.engine().retracted_pages().pages().num_used(), 2);
  rig.CutLink(absl::UnavailableError("the prefill worker is gone"));
  rig.Grant(key, 1000);
  rig.Settle();
  rig.ExpectFinished(key);
  EXPECT_EQ(rig.engine().counters().tokens_replayed, 0);
  EXPECT_EQ(rig.engine().retracted_pages().pages().num_used(), 0);
}

TEST(EngineRetractionTest, CancelsGiveTheHostsPagesBack) {
  EngineRig rig = MakeRig(16, 8, kRoomForAll);
  std::vector<RequestKey> keys;
  for (uint64_t id = 1; id <= 3; ++id) {
    GenerateRequest request = EngineRig::MakeEndless(id, 100, 50, 2);
    request.head.set_credit_bytes(10 * proto::kTokenCreditBytes);
    keys.push_back(rig.Submit(request));
  }
  rig.Settle();
  rig.Advance(absl::Seconds(3));
  ASSERT_EQ(rig.engine().num_parked(), 3);
  EXPECT_EQ(rig.engine().retracted_pages().pages().num_used(), 3 * (1 + 2));
  rig.CancelChoice(keys[0], 1);
  rig.Settle();
  EXPECT_EQ(rig.engine().retracted_pages().pages().num_used(), 3 * (1 + 2) - 1);
  rig.CancelRequest(keys[1]);
  rig.CancelRequest(keys[2]);
  rig.Settle();
  EXPECT_EQ(rig.engine().retracted_pages().pages().num_used(), 2);
  rig.Grant(keys[0], 1000);
  rig.Settle();
  rig.ExpectChoice(keys[0], 0);
  EXPECT_EQ(rig.engine().counters().tokens_replayed, 0);
  rig.ExpectNothingHeld();
}

TEST(EngineRetractionTest, DeviceBuffersWriteBackBeforeTheirHostPagesLeave) {
  EngineRig rig = MakeRig(6, 8, kRoomForAll, 384, {.num_device_pages = 8, .num_kept_pages_max = 2});
  const RequestKey older = rig.Submit(EngineRig::MakeEndless(1, 100, 200));
  const RequestKey younger = rig.Submit(EngineRig::MakeEndless(2, 90, 200));
  rig.Settle();
  rig.ExpectFinished(older);
  rig.ExpectFinished(younger);
  EXPECT_GT(rig.engine().counters().kept_retractions, 0);
  EXPECT_EQ(rig.engine().counters().kept_resumes, rig.engine().counters().kept_retractions);
  rig.ExpectNothingHeld();
}

// Requests of any length, some with choices, some with slow readers, some cancelled, in pools that hold barely one of
// them, beside host pools of any size.
TEST(EngineRetractionTest, AnyMixOfRequestsEndsAsTheOracleSays) {
  int64_t kept = 0, computed_again = 0;
  for (int seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937 rng(seed);
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
    sim::HiSparseOptions hisparse;
    if (draw(0, 2) == 0) hisparse = {.num_device_pages = draw(3, 8), .num_kept_pages_max = draw(1, 2)};
    const int num_pages = draw(5, 9);
    EngineRig rig = MakeRig(num_pages, 6, draw(0, 3) == 0 ? 1 : draw(2, 20), 320, hisparse);
    std::vector<RequestKey> keys;
    std::vector<bool> is_cancelled;
    for (uint64_t id = 1; id <= 8; ++id) {
      GenerateRequest request =
          EngineRig::MakeRequest(id, draw(1, 150), static_cast<uint32_t>(draw(1, 150)), draw(0, 3) == 0 ? 2 : 1);
      if (draw(0, 1) == 0) request.head.mutable_stopping()->clear_stop_token_ids();
      if (draw(0, 2) == 0) request.head.mutable_sampling()->set_frequency_penalty(0.5f);
      if (draw(0, 2) == 0) request.head.set_credit_bytes(draw(1, 40) * proto::kTokenCreditBytes);
      keys.push_back(rig.Submit(request));
      is_cancelled.push_back(false);
      for (int i = draw(0, 30); i > 0; --i) {
        rig.engine().Step();
        rig.DeliverOnce();
      }
      if (draw(0, 5) == 0) {
        const int victim = draw(0, static_cast<int>(keys.size()) - 1);
        rig.CancelRequest(keys[victim]);
        is_cancelled[victim] = true;
      }
    }
    rig.Settle();
    rig.Advance(absl::Seconds(3));
    for (size_t i = 0; i < keys.size(); ++i) {
      for (uint32_t choice = 0; choice < 2; ++choice) {
        proto::RouterMessage message;
        *message.mutable_credit()->mutable_key() = keys[i].ToProto();
        message.mutable_credit()->set_choice(choice);
        message.mutable_credit()->set_granted_bytes(1 << 20);
        rig.engine().RouterMessage(1, message);
      }
    }
    rig.Settle();
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!is_cancelled[i]) rig.ExpectFinished(keys[i]);
    }
    EXPECT_EQ(rig.engine().counters().replay_mismatches, 0);
    rig.ExpectNothingHeld();
    kept += rig.engine().counters().kept_resumes;
    computed_again += rig.engine().counters().tokens_replayed;
    if (HasFailure()) break;
  }
  EXPECT_GT(kept, 50);
  EXPECT_GT(computed_again, 0);
}

}  // namespace
}  // namespace tandem::decode

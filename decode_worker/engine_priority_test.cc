// Proves the order in which requests take pages under either policy: of arrival, or of priority; that where pages run
// out the lowest priority gives way, whenever it came; and that answers are the oracle's all the same.
#include <vector>

#include "decode_worker/testing/engine_rig.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::decode {
namespace {

using ::testing::ElementsAre;
using worker_shell::SchedulePolicy;

EngineRig MakeRig(int num_pages, int num_sequences_max, SchedulePolicy policy) {
  return EngineRig(num_pages, num_sequences_max, /*context_length_max=*/320, RigSpeculation(), /*hisparse=*/{},
                   /*num_kept_pages=*/0, /*keeps_generated_pages=*/false, policy);
}

RequestKey Submit(EngineRig& rig, uint64_t id, int priority, int num_prompt_tokens, uint32_t max_new_tokens) {
  GenerateRequest request = EngineRig::MakeEndless(id, num_prompt_tokens, max_new_tokens);
  request.head.set_priority(priority);
  return rig.Submit(std::move(request));
}

TEST(EnginePriorityTest, TheLineGoesByArrivalOrByPriority) {
  for (const SchedulePolicy policy : {SchedulePolicy::kFcfs, SchedulePolicy::kPriority}) {
    EngineRig rig = MakeRig(8, 1, policy);
    std::vector<RequestKey> keys;
    for (const int priority : {0, 0, -2, 7, 0, 7}) {
      keys.push_back(Submit(rig, keys.size() + 1, priority, 30, 10));
      if (keys.size() == 1) rig.RunTo(keys[0], 0, 1);  // it holds the one place
    }
    rig.Settle();
    for (const RequestKey& key : keys) rig.ExpectFinished(key);
    if (policy == SchedulePolicy::kFcfs) {
      EXPECT_EQ(rig.ended_order(), keys);
    } else {
      EXPECT_THAT(rig.ended_order(), ElementsAre(keys[0], keys[3], keys[5], keys[1], keys[4], keys[2]));
    }
    rig.ExpectNothingHeld();
  }
}

TEST(EnginePriorityTest, WherePagesRunOutTheLowestPriorityGivesWay) {
  for (const SchedulePolicy policy : {SchedulePolicy::kFcfs, SchedulePolicy::kPriority}) {
    EngineRig rig = MakeRig(5, 4, policy);  // room for one answer and the beginning of another
    const RequestKey low = Submit(rig, 1, -1, 60, 240);
    rig.RunTo(low, 0, 5);
    const RequestKey high = Submit(rig, 2, 1, 60, 240);
    rig.Settle();
    rig.ExpectFinished(low);
    rig.ExpectFinished(high);
    EXPECT_GT(rig.engine().counters().retractions, 0);
    if (policy == SchedulePolicy::kFcfs) {
      EXPECT_THAT(rig.ended_order(), ElementsAre(low, high));
    } else {
      EXPECT_THAT(rig.ended_order(), ElementsAre(high, low));
    }
    rig.ExpectNothingHeld();
  }
}

// A steady stream of the favoured: each is sent when one before it has ended.
TEST(EnginePriorityTest, NobodyIsOvertakenForEver) {
  EngineRig rig = MakeRig(8, 1, SchedulePolicy::kPriority);
  const RequestKey first = Submit(rig, 1, 5, 30, 3);
  rig.RunTo(first, 0, 1);
  const RequestKey low = Submit(rig, 2, -5, 30, 3);
  RequestKey newest = Submit(rig, 3, 5, 30, 3);
  for (uint64_t id = 4; id < 60 && !rig.has_ended(low); ++id) {
    const RequestKey next = Submit(rig, id, 5, 30, 3);
    rig.RunTo(newest, 0, 3);
    newest = next;
  }
  EXPECT_TRUE(rig.has_ended(low)) << "while others still came";
  EXPECT_LE(rig.ended_order().size(), worker_shell::kOvertakenMax + 4u);
  rig.Settle();
  rig.ExpectFinished(low);
  rig.ExpectNothingHeld();
}

}  // namespace
}  // namespace tandem::decode

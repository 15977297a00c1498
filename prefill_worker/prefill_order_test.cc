// Proves, of the order and the chunks together, as the engine puts them together, over streams of arrivals that never
// end: no step goes beyond its budget or leaves rows unused; a short prompt is through in a few steps however long
// those before it are; and nobody waits for ever, under either policy, though shorter and more urgent prompts keep
// coming.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "absl/container/btree_map.h"
#include "gtest/gtest.h"
#include "prefill_worker/chunk_scheduler.h"
#include "worker_shell/request_order.h"

namespace tandem::prefill {
namespace {

constexpr int kBudget = 128, kHalf = kBudget / 2;

struct Request {
  worker_shell::Place place;
  int num_overtaken = 0;
  int64_t left = 0;
  int arrived_at = 0;  // step
  int ended_at = -1;
  int64_t steps_due = 0;  // that all who are here take at half the budget, itself included
};

class Stream final {
 public:
  explicit Stream(worker_shell::SchedulePolicy policy) : policy_(policy) {}
  Request& Arrive(int64_t num_tokens, int32_t priority = 0) {
    Request& request = requests_.emplace_back();
    request.place = worker_shell::PlaceOf(policy_, priority, requests_.size());
    request.left = num_tokens;
    request.arrived_at = step_;
    active_.emplace(request.place, &request);
    for (const auto& [place, other] : active_) request.steps_due += (other->left + kHalf - 1) / kHalf;
    return request;
  }
  void Step() {
    ++step_;
    std::vector<Request*> in_order;
    std::vector<int64_t> left;
    int64_t total = 0;
    for (const auto& [place, request] : active_) {
      in_order.push_back(request);
      left.push_back(request->left);
      total += request->left;
    }
    int64_t planned = 0;
    for (const PlannedChunk& chunk : scheduler_.Plan(left)) {
      in_order[chunk.request_index]->left -= chunk.num_tokens;
      planned += chunk.num_tokens;
    }
    EXPECT_EQ(planned, std::min<int64_t>(total, kBudget));
    for (Request* request : in_order) {
      ASSERT_GE(request->left, 0);
      if (request->left > 0) continue;
      request->ended_at = step_;
      active_.erase(request->place);
      worker_shell::CountOvertaken(request->place, active_);
    }
  }
  void RunToTheEnd() {
    while (!active_.empty()) Step();
  }
  const std::deque<Request>& requests() const { return requests_; }

 private:
  const worker_shell::SchedulePolicy policy_;
  const ChunkScheduler scheduler_{{.num_tokens_max = kBudget, .num_chunks_max = kBudget}};
  std::deque<Request> requests_;
  absl::btree_map<worker_shell::Place, Request*> active_;
  int step_ = 0;
};

TEST(PrefillOrderTest, AShortPromptNeverWaitsForALongOnesWholePrefill) {
  for (const worker_shell::SchedulePolicy policy :
       {worker_shell::SchedulePolicy::kFcfs, worker_shell::SchedulePolicy::kPriority}) {
    std::mt19937 random(1);
    Stream stream(policy);
    std::vector<const Request*> short_ones;
    for (int round = 0; round < 2000; ++round) {
      // Two thousand steps each, one after the other and side by side, of whatever priority.
      if (round % 100 == 0) stream.Arrive(100'000, static_cast<int32_t>(random() % 3) - 1);
      if (round % 3 == 0) short_ones.push_back(&stream.Arrive(1 + random() % kHalf));
      stream.Step();
    }
    for (const Request* request : short_ones) {
      if (request->arrived_at > 1990) continue;
      // One step more where the rest of a long one was shorter still.
      ASSERT_GE(request->ended_at, 0);
      EXPECT_LE(request->ended_at - request->arrived_at, 2) << "of step " << request->arrived_at;
    }
  }
}

TEST(PrefillOrderTest, InOrderOfArrivalEverybodyEndsWithinWhatTheOlderOnesTake) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    Stream stream(worker_shell::SchedulePolicy::kFcfs);
    for (int round = 0; round < 1500; ++round) {
      // More than is computed for a while, then less: what waits is caught up with.
      const bool is_rush = round % 500 < 150;
      for (unsigned i = random() % (is_rush ? 5 : 2); i > 0; --i) {
        stream.Arrive(1 + random() % (random() % 10 == 0 ? 3000 : 80));
      }
      stream.Step();
    }
    stream.RunToTheEnd();
    for (const Request& request : stream.requests()) {
      EXPECT_LE(request.ended_at - request.arrived_at, request.steps_due) << "seed " << seed;
    }
  }
}

TEST(PrefillOrderTest, UrgentPromptsThatKeepComingStarveNoLowOne) {
  std::mt19937 random(3);
  Stream stream(worker_shell::SchedulePolicy::kPriority);
  constexpr int kLongest = 500, kRounds = 1500;
  for (int round = 0; round < kRounds; ++round) {
    if (round % 150 == 0) stream.Arrive(kLongest, -5);
    // Always more than a step takes, all of it more urgent and shorter than the low ones' rest.
    for (int i = 0; i < 3; ++i) stream.Arrive(40 + random() % 20, static_cast<int32_t>(random() % 3));
    stream.Step();
  }
  stream.RunToTheEnd();
  for (const Request& request : stream.requests()) {
    // Those who came before it, and so many later ones as may overtake it.
    EXPECT_LE(request.ended_at - request.arrived_at,
              request.steps_due + worker_shell::kOvertakenMax * ((kLongest + kHalf - 1) / kHalf));
  }
}

}  // namespace
}  // namespace tandem::prefill

// LaneSet over lanes whose Close hangs until the test lets it go, as that of a dead peer may.
#include "kvtransfer/lane_set.h"

#include <atomic>
#include <map>
#include <memory>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace tandem::kvtransfer {
namespace {

// Fetches stay outstanding until Finish or Close.
class HeldLane final : public FetchLane {
 public:
  explicit HeldLane(absl::Notification* may_close) : may_close_(may_close) {}
  ~HeldLane() override { Close(); }
  std::string_view kind() const override { return "held"; }
  void Fetch(uint64_t epoch, std::vector<ByteRun>, std::function<void(absl::Status)> done) override {
    absl::MutexLock lock(&mutex_);
    held_.emplace(epoch, std::move(done));
  }
  void Cancel(uint64_t epoch) override { Finish(epoch, absl::CancelledError("cancelled")); }
  void Close() override {
    if (may_close_ != nullptr) may_close_->WaitForNotification();
    while (true) {
      uint64_t epoch = 0;
      {
        absl::MutexLock lock(&mutex_);
        if (held_.empty()) return;
        epoch = held_.begin()->first;
      }
      Finish(epoch, absl::CancelledError("closed"));
    }
  }
  void Finish(uint64_t epoch, absl::Status status) {
    std::multimap<uint64_t, std::function<void(absl::Status)>>::node_type node;
    {
      absl::MutexLock lock(&mutex_);
      const auto it = held_.find(epoch);
      if (it == held_.end()) return;
      node = held_.extract(it);
    }
    node.mapped()(std::move(status));
  }

 private:
  absl::Notification* const may_close_;
  absl::Mutex mutex_;
  std::multimap<uint64_t, std::function<void(absl::Status)>> held_ ABSL_GUARDED_BY(mutex_);
};

// What fetch_done was told, by fetch id.
class Results {
 public:
  void Add(uint64_t fetch_id, absl::Status status) {
    absl::MutexLock lock(&mutex_);
    EXPECT_TRUE(results_.emplace(fetch_id, std::move(status)).second) << "done twice";
  }
  absl::StatusCode Await(uint64_t fetch_id) {
    absl::MutexLock lock(&mutex_);
    const auto is_there = [&] { return results_.contains(fetch_id); };
    mutex_.Await(absl::Condition(&is_there));
    return results_.at(fetch_id).code();
  }
  size_t size() {
    absl::MutexLock lock(&mutex_);
    return results_.size();
  }

 private:
  absl::Mutex mutex_;
  std::map<uint64_t, absl::Status> results_ ABSL_GUARDED_BY(mutex_);
};

RankLanes OneLane(HeldLane*& lane, absl::Notification* may_close = nullptr) {
  auto owned = std::make_unique<HeldLane>(may_close);
  lane = owned.get();
  RankLanes lanes(1);
  lanes[0].push_back(std::move(owned));
  return lanes;
}

StartFetch FetchOf(std::string peer, uint64_t fetch_id, uint64_t epoch = 1) {
  return {.peer = std::move(peer), .epoch = epoch, .fetch_id = fetch_id, .runs = {{.num_bytes = 1}}};
}

TEST(LaneSetTest, BringsEachFetchToItsLaneAndItsResultBack) {
  Results results;
  LaneSet set([&](uint64_t id, absl::Status status) { results.Add(id, std::move(status)); });
  HeldLane* lane_a;
  HeldLane* lane_b;
  set.Add("a", OneLane(lane_a));
  set.Add("b", OneLane(lane_b));
  set.Run(FetchOf("a", 1));
  set.Run(FetchOf("b", 2));
  lane_b->Finish(1, absl::OkStatus());
  EXPECT_EQ(results.Await(2), absl::StatusCode::kOk);
  EXPECT_EQ(results.size(), 1u);
  lane_a->Finish(1, absl::UnavailableError("broke"));
  EXPECT_EQ(results.Await(1), absl::StatusCode::kUnavailable);
}

TEST(LaneSetTest, RetiringDoesNotWaitForALaneThatHangs) {
  Results results;
  absl::Notification may_close;
  LaneSet set([&](uint64_t id, absl::Status status) { results.Add(id, std::move(status)); });
  HeldLane* lane;
  set.Add("a", OneLane(lane, &may_close));
  set.Run(FetchOf("a", 1));
  set.Retire("a");  // returns, although Close waits for may_close
  EXPECT_EQ(results.size(), 0u);
  set.Run(FetchOf("a", 2));  // the peer is gone
  EXPECT_EQ(results.Await(2), absl::StatusCode::kCancelled);
  HeldLane* successor;
  set.Add("a", OneLane(successor));
  set.Run(FetchOf("a", 3));
  successor->Finish(1, absl::OkStatus());
  EXPECT_EQ(results.Await(3), absl::StatusCode::kOk);
  may_close.Notify();
  EXPECT_EQ(results.Await(1), absl::StatusCode::kCancelled);
}

TEST(LaneSetTest, CancelsOneEpochOfOnePeer) {
  Results results;
  LaneSet set([&](uint64_t id, absl::Status status) { results.Add(id, std::move(status)); });
  HeldLane* lane;
  set.Add("a", OneLane(lane));
  set.Run(FetchOf("a", 1, /*epoch=*/5));
  set.Run(FetchOf("a", 2, /*epoch=*/6));
  set.Cancel({.peer = "a", .epoch = 5});
  set.Cancel({.peer = "nobody", .epoch = 6});
  EXPECT_EQ(results.Await(1), absl::StatusCode::kCancelled);
  EXPECT_EQ(results.size(), 1u);
  lane->Finish(6, absl::OkStatus());
  EXPECT_EQ(results.Await(2), absl::StatusCode::kOk);
}

TEST(LaneSetTest, ItsEndClosesEveryLane) {
  Results results;
  {
    LaneSet set([&](uint64_t id, absl::Status status) { results.Add(id, std::move(status)); });
    HeldLane* lane;
    set.Add("a", OneLane(lane));
    set.Run(FetchOf("a", 1));
  }
  EXPECT_EQ(results.Await(1), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace tandem::kvtransfer

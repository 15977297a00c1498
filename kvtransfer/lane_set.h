// Decode's lanes to all its peers: carries out StartFetch, and closes the lanes of dead peers away from the engine.
//
// FetchLane::Close waits until nothing touches memory any more; a thread of its own does that, so that the engine
// never waits for a dead peer. Every fetch ends in exactly one call of `fetch_done`, also those of lanes being closed
// and those for peers that are gone.
// Tested by lane_set_test.cc.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "kvtransfer/fetch_lane.h"
#include "kvtransfer/transfer_target.h"

namespace tandem::kvtransfer {

// lanes[rank][lane]; every rank has the same kinds in the same order.
using RankLanes = std::vector<std::vector<std::unique_ptr<FetchLane>>>;

class LaneSet final {
 public:
  // `fetch_done` is called on lanes' threads, or within StartFetch where the peer is gone; it must not block (it
  // normally pushes FetchDone to the engine's mailbox).
  explicit LaneSet(std::function<void(uint64_t fetch_id, absl::Status status)> fetch_done);
  // Closes every lane and waits.
  ~LaneSet();
  LaneSet(const LaneSet&) = delete;
  LaneSet& operator=(const LaneSet&) = delete;

  // Lanes of an earlier session of the peer are retired first. Engine's thread, like the three below.
  void Add(std::string_view peer, RankLanes lanes);
  void Retire(std::string_view peer);
  void Run(StartFetch fetch);
  void Cancel(const CancelFetches& cancel);

 private:
  void CloseRetired();
  bool HasRetired() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !retired_.empty(); }

  const std::function<void(uint64_t, absl::Status)> fetch_done_;
  std::map<std::string, RankLanes, std::less<>> peers_;  // engine's thread only
  absl::Mutex mutex_;
  std::deque<RankLanes> retired_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread closer_;
};

}  // namespace tandem::kvtransfer

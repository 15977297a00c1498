// A source and a lane to it, for tests that run every kind of lane through the same cases.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kvtransfer/epoch_check.h"
#include "kvtransfer/fetch_lane.h"
#include "kvtransfer/lane_end.h"

namespace tandem::kvtransfer {

inline constexpr uint64_t kRigIncarnation = 0x1122334455667788;

// Epochs 1 to 100 of kRigIncarnation are readable.
bool IsRigEpochReadable(const FetchOrigin& origin);

class LaneRig {
 public:
  virtual ~LaneRig() = default;
  virtual std::span<std::byte> source() = 0;  // pool of the source, writable
  virtual std::unique_ptr<FetchLane> Open(std::span<std::byte> target) = 0;
  // The source goes away in good order; its lanes stay open.
  virtual void StopSource() = 0;
  // Whether the source answers each fetch, so that it can refuse one and be missed.
  virtual bool HasAnsweringSource() const = 0;
};

// kind: "loopback", "fault" (every fetch delayed, reordered or duplicated), "ucx_shm", "tcp", "ucx_am".
std::unique_ptr<LaneRig> MakeLaneRig(std::string_view kind, size_t pool_bytes);

// The lane of that end's kind, of decode worker kRigIncarnation. CHECKs that it opens.
std::unique_ptr<FetchLane> OpenRigLane(const LaneEnd& end, std::span<std::byte> target);

// Collects the `done` of several fetches.
class FetchResults {
 public:
  std::function<void(absl::Status)> Expect();
  // Waits until every expected `done` was called; their results, in order of Expect. Fails the test after 30 s.
  std::vector<absl::Status> Wait();

 private:
  struct Result {
    int num_calls = 0;
    absl::Status status;
  };
  bool AreAllDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::vector<Result> results_ ABSL_GUARDED_BY(mutex_);
};

void FillRandom(std::span<std::byte> bytes, uint64_t seed);

}  // namespace tandem::kvtransfer

// A lane whose fetch is a copy by the lane's own thread: loopback and shared memory.
//
// The thread takes fetches in order and copies them in pieces of at most kPieceBytes; between two pieces it looks for
// Cancel and Close. So both end within one piece, and the thread is the only one that ever stores into the target.
// It sleeps while there is nothing to copy. Tested by lane_conformance_test.cc.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kvtransfer/fetch_lane.h"

namespace tandem::kvtransfer {

// How one lane copies. Made, used and destroyed by the lane's thread alone.
class PieceSource {
 public:
  virtual ~PieceSource() = default;
  virtual uint64_t num_bytes() const = 0;  // of the source pool
  // May this epoch be read? Asked once for each fetch. OK where this kind cannot know.
  virtual absl::Status Admit(uint64_t epoch, std::span<const ByteRun> runs) = 0;
  // Copies target.size() bytes from the offset on. Returns when they are there. UNAVAILABLE: the lane is dead.
  virtual absl::Status Copy(uint64_t source_offset, std::span<std::byte> target) = 0;
};

class CopyLane final : public FetchLane {
 public:
  static constexpr uint64_t kPieceBytes = uint64_t{1} << 20;  // about 0.1 ms

  // Calls make_source on the lane's thread and waits for it; returns its error.
  static absl::StatusOr<std::unique_ptr<CopyLane>> Open(
      std::string kind, std::function<absl::StatusOr<std::unique_ptr<PieceSource>>()> make_source,
      std::span<std::byte> target);
  ~CopyLane() override;  // closes

  std::string_view kind() const override { return kind_; }
  void Fetch(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) override;
  void Cancel(uint64_t epoch) override;
  void Close() override;

 private:
  struct Work {
    uint64_t epoch;
    std::vector<ByteRun> runs;
    std::function<void(absl::Status)> done;
    bool is_cancelled = false;
  };
  CopyLane(std::string kind, std::span<std::byte> target) : kind_(std::move(kind)), target_(target) {}
  void Run(PieceSource& source);
  absl::Status CopyRuns(PieceSource& source, const std::shared_ptr<Work>& work);
  bool HasNews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_closed_ || !queue_.empty(); }
  bool IsStopped(const Work& work) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string kind_;
  const std::span<std::byte> target_;
  absl::Mutex mutex_;
  // The front is under way; it stays here until it is done, so that Cancel finds it.
  std::deque<std::shared_ptr<Work>> queue_ ABSL_GUARDED_BY(mutex_);
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Mutex join_mutex_;
  std::thread thread_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace tandem::kvtransfer

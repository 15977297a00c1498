// Checks and cuts lists of byte runs: what every lane does before it copies.
// Tested by byte_run_test.cc.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kvtransfer/fetch_lane.h"

namespace tandem::kvtransfer {

// OUT_OF_RANGE naming the first run that is empty or leaves a pool. Runs name offsets that a peer sent: no sum of them
// may overflow.
absl::Status ValidateRuns(std::span<const ByteRun> runs, uint64_t source_bytes, uint64_t target_bytes);

uint64_t TotalBytes(std::span<const ByteRun> runs);

// Hands out a list of runs in pieces of bounded size, in order: each byte once.
class RunCutter final {
 public:
  explicit RunCutter(std::vector<ByteRun> runs) : runs_(std::move(runs)) {}

  bool IsDone() const { return next_ == runs_.size(); }
  // The next runs: at most num_bytes_max bytes in at most num_runs_max runs, as much as fits. Both at least 1.
  std::vector<ByteRun> Cut(uint64_t num_bytes_max, size_t num_runs_max);

 private:
  std::vector<ByteRun> runs_;
  size_t next_ = 0;
  uint64_t offset_ = 0;  // bytes of runs_[next_] that were handed out
};

}  // namespace tandem::kvtransfer

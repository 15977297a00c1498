#include "kvtransfer/byte_run.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem::kvtransfer {
namespace {

bool FitsInto(uint64_t offset, uint64_t num_bytes, uint64_t pool_bytes) {
  return offset <= pool_bytes && num_bytes <= pool_bytes - offset;
}

}  // namespace

absl::Status ValidateRuns(std::span<const ByteRun> runs, uint64_t source_bytes, uint64_t target_bytes) {
  for (const ByteRun& run : runs) {
    if (run.num_bytes == 0) return absl::OutOfRangeError("a run of no bytes");
    if (!FitsInto(run.source_offset, run.num_bytes, source_bytes)) {
      return absl::OutOfRangeError(absl::StrCat("run of ", run.num_bytes, " bytes at ", run.source_offset,
                                                " of a source pool of ", source_bytes, " bytes"));
    }
    if (!FitsInto(run.target_offset, run.num_bytes, target_bytes)) {
      return absl::OutOfRangeError(absl::StrCat("run of ", run.num_bytes, " bytes at ", run.target_offset,
                                                " of a target pool of ", target_bytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

uint64_t TotalBytes(std::span<const ByteRun> runs) {
  uint64_t total = 0;
  for (const ByteRun& run : runs) total += run.num_bytes;
  return total;
}

std::vector<ByteRun> RunCutter::Cut(uint64_t num_bytes_max, size_t num_runs_max) {
  TANDEM_CHECK(num_bytes_max > 0 && num_runs_max > 0, "a piece of nothing");
  std::vector<ByteRun> piece;
  while (!IsDone() && num_bytes_max > 0 && piece.size() < num_runs_max) {
    const ByteRun& run = runs_[next_];
    const uint64_t num_bytes = std::min(run.num_bytes - offset_, num_bytes_max);
    piece.push_back({run.source_offset + offset_, run.target_offset + offset_, num_bytes});
    num_bytes_max -= num_bytes;
    offset_ += num_bytes;
    if (offset_ == run.num_bytes) {
      ++next_;
      offset_ = 0;
    }
  }
  return piece;
}

}  // namespace tandem::kvtransfer

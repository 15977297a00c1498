// D's end of one way to move KV bytes from one source rank: the seam between the transfer protocol and UCX, shared
// memory, loopback and injected faults.
//
// Invariants every lane keeps: `done` is called exactly once per Fetch, from the lane's own thread (from Fetch itself
// where the lane is closed already), and after it the lane never again touches the target bytes of that fetch; Close
// returns only when no fetch is outstanding. So a page may be freed as soon as its fetches are done: a local fact.
// All methods may be called from any thread, Fetch and Cancel from within `done` too; Close may not (it waits for the
// lane's thread). `done` is called with no lock of the lane held and must not block.
// Errors that `done` gets: CANCELLED (Cancel, Close), ABORTED (the source knows no such epoch: only lanes whose source
// answers can tell), OUT_OF_RANGE (a run outside either pool), UNAVAILABLE (the source is gone: so is this lane).
// Tested by lane_conformance_test.cc, which runs every implementation through the same cases.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tandem::kvtransfer {

// The epoch of fetches that belong to no request: the warm-up by which a lane's rate is measured. Every source lets it
// read the first kWarmUpBytesMax bytes of its pool, and nothing else.
inline constexpr uint64_t kWarmUpEpoch = 0;
inline constexpr uint64_t kWarmUpBytesMax = uint64_t{1} << 20;

// Bytes that are contiguous on both sides: offsets into the source's and the target's KV pools.
struct ByteRun {
  uint64_t source_offset = 0;
  uint64_t target_offset = 0;
  uint64_t num_bytes = 0;
  bool operator==(const ByteRun&) const = default;
};

class FetchLane {
 public:
  virtual ~FetchLane() = default;
  virtual std::string_view kind() const = 0;  // "ucx_shm", "ucx_am", "loopback", "fault"
  // Starts copying the runs into the target pool. Never blocks.
  virtual void Fetch(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) = 0;
  // Fails what is outstanding of this epoch with CANCELLED, soon: within one piece of the lane, a few milliseconds. A
  // fetch whose bytes have all arrived may still end with OK.
  virtual void Cancel(uint64_t epoch) = 0;
  // Fails what is outstanding with CANCELLED and waits until none touches memory. Later fetches fail at once.
  virtual void Close() = 0;
};

}  // namespace tandem::kvtransfer

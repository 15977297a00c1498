// D's end of one way to move KV bytes from one source rank: the seam between the transfer protocol and UCX, shared
// memory, loopback and injected faults.
//
// Invariants every lane keeps: `done` is called exactly once per Fetch, from the lane's own thread (or from Close), and
// after it the lane never again touches the target bytes of that fetch; Close returns only when no fetch is
// outstanding. So a page may be freed as soon as its fetches are done: a local fact.
// Tested by lane_conformance_test.cc, which runs every implementation through the same cases.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tandem::kvtransfer {

// Bytes that are contiguous on both sides: offsets into the source's and the target's KV pools.
struct ByteRun {
  uint64_t source_offset = 0;
  uint64_t target_offset = 0;
  uint64_t num_bytes = 0;
};

class FetchLane {
 public:
  virtual ~FetchLane() = default;
  virtual std::string_view kind() const = 0;  // "ucx_shm", "ucx_am", "loopback", "fault"
  // Starts copying the runs into the target pool. Never blocks.
  virtual void Fetch(uint64_t epoch, std::vector<ByteRun> runs, std::function<void(absl::Status)> done) = 0;
  // Fails what is outstanding with CANCELLED and waits until none touches memory. Later fetches fail at once.
  virtual void Close() = 0;
};

}  // namespace tandem::kvtransfer

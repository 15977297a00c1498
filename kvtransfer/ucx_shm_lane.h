// A lane to a source on the same host: decode maps the source's pool, a posix segment that UCX allocated there, and
// reads it with ucp_get. The copy is decode's own; the source takes no part in it, and its death changes nothing: the
// mapping stays until the lane is closed. So a fetch cannot be refused here, and a read of pages that the source has
// freed meanwhile is caught by their sums. Whether the source lives is the control stream's business.
// The segment has no name in /dev/shm (UCX unlinks it and shares it through /proc/<pid>/fd): nothing is left after
// kill -9. It follows that both processes see each other's /proc: two containers without a shared PID namespace do
// not, and Open says so.
// Tested by lane_conformance_test.cc and lane_process_test.cc.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kvtransfer/fetch_lane.h"
#include "kvtransfer/lane_end.h"

namespace tandem::kvtransfer {

// INVALID_ARGUMENT where `end` is not of this kind; UNAVAILABLE where the segment cannot be mapped. `target` outlives
// the lane.
absl::StatusOr<std::unique_ptr<FetchLane>> OpenUcxShmLane(const LaneEnd& end, std::span<std::byte> target);

}  // namespace tandem::kvtransfer

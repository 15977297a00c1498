// A lane to any source that TCP reaches: decode asks for pieces over one connection of its own, the source answers in
// order, and payloads are read straight into their place.
//
// At every reply the lane's thread checks request and epoch before a byte of it may land, and before every further read
// whether the fetch still wants it: the rest of a reply to a cancelled fetch is drained to scratch. So Cancel and Close
// end fetches at once, without a word from the source. At most kTcpWindowPieces requests are unanswered: that bounds
// memory on both sides. The lane dies with its connection: everything outstanding and later gets UNAVAILABLE; a new
// handshake opens a new lane. Needs no UCX, and its source's port may be reached by anybody
// (docs/adr/0007-lanes-over-ucx.md).
// Tested by lane_conformance_test.cc, tcp_lane_test.cc (a source that lies) and lane_process_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kvtransfer/fetch_lane.h"
#include "kvtransfer/lane_end.h"

namespace tandem::kvtransfer {

// INVALID_ARGUMENT where `end` is not of this kind. A source that cannot be reached shows here or at the first fetch.
// target_incarnation: of this decode worker. `target` outlives the lane.
absl::StatusOr<std::unique_ptr<FetchLane>> OpenTcpLane(const LaneEnd& end, std::span<std::byte> target,
                                                       uint64_t target_incarnation);

}  // namespace tandem::kvtransfer

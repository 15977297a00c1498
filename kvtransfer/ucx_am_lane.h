// A lane to any source that TCP reaches: decode asks with active messages for pieces, the source answers each with one
// eager message, and the lane's thread copies it into place.
//
// One thread of its own touches every UCX object and is the only one that stores into the target. At every reply it
// checks incarnation, epoch and request before it copies: a reply to a fetch that was cancelled is drained and dropped.
// So Cancel and Close end fetches at once, without a word from the source. At most kAmWindowPieces requests are
// unanswered: that bounds memory on both sides. The lane dies with its connection: everything outstanding and later
// gets UNAVAILABLE; a new handshake opens a new lane.
// Never put or get over UCX's TCP: 1.13.1 emulates them at a tenth of the rate or less.
// Tested by lane_conformance_test.cc and lane_process_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "kvtransfer/fetch_lane.h"
#include "kvtransfer/lane_end.h"

namespace tandem::kvtransfer {

// INVALID_ARGUMENT where `end` is not of this kind. A source that cannot be reached shows at the first fetch.
// target_incarnation: of this decode worker. net_devices: as UCX names them, "all". `target` outlives the lane.
absl::StatusOr<std::unique_ptr<FetchLane>> OpenUcxAmLane(const LaneEnd& end, std::span<std::byte> target,
                                                         uint64_t target_incarnation,
                                                         const std::string& net_devices = "all");

}  // namespace tandem::kvtransfer

// A FetchLane around a LaneClient: one thread that owns the client, fed by a queue.
//
// The thread takes orders between two pieces, so that Cancel and Close wait for one piece at most; it is the only one
// that ever stores into the target. Tested by lane_conformance_test.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kvtransfer/fetch_lane.h"
#include "kvtransfer/lane_client.h"

namespace tandem::kvtransfer {

using ConnectClient = std::function<absl::StatusOr<std::unique_ptr<LaneClient>>()>;

// Calls `connect` on the lane's thread and waits for it; returns its error.
absl::StatusOr<std::unique_ptr<FetchLane>> OpenThreadedLane(std::string kind, ConnectClient connect);

}  // namespace tandem::kvtransfer

// A lane between two pools of one process: memcpy on the lane's own thread. For workers that run in one process, and
// for tests of everything above lanes. Tested by lane_conformance_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kvtransfer/epoch_check.h"
#include "kvtransfer/fetch_lane.h"

namespace tandem::kvtransfer {

// Both spans outlive the lane.
std::unique_ptr<FetchLane> OpenLoopbackLane(std::span<const std::byte> source, std::span<std::byte> target,
                                            uint64_t target_incarnation, EpochCheck is_epoch_readable);

}  // namespace tandem::kvtransfer

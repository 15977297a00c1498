// What a source lets a fetch read. Every lane whose source takes part in a fetch asks this, in one place.
// Tested by epoch_check_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "kvtransfer/fetch_lane.h"

namespace tandem::kvtransfer {

// Names a fetch to its source: epochs are unique only within one incarnation of decode.
struct FetchOrigin {
  uint64_t target_incarnation = 0;
  uint64_t epoch = 0;
};

// Whether an epoch's pages may be read at the source. Called from lanes' threads; must not block.
using EpochCheck = std::function<bool(const FetchOrigin& origin)>;

// ABORTED where the epoch is unknown. The warm-up epoch may read the first kWarmUpBytesMax bytes, and OUT_OF_RANGE
// what lies behind.
absl::Status CheckReadable(const FetchOrigin& origin, std::span<const ByteRun> runs,
                           const EpochCheck& is_epoch_readable);

}  // namespace tandem::kvtransfer

// Measures a lane when it is opened, and says whether it is fit for use: a lane that runs on an emulation or over the
// wrong device works, at a hundredth of the rate, and must be refused instead of recorded.
// Tested by lane_probe_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "kvtransfer/fetch_lane.h"

namespace tandem::kvtransfer {

struct ProbeOptions {
  uint64_t target_offset = 0;               // of scratch within the lane's target that no fetch of a request uses
  uint64_t num_bytes = 0;                   // at most kWarmUpBytesMax and the source's pool
  int num_tries = 3;                        // the first one pays for connecting
  absl::Duration limit = absl::Seconds(2);  // for each try
};

// Bytes per second of the best try. The lane's own error, or DEADLINE_EXCEEDED; nothing is outstanding on return.
absl::StatusOr<double> MeasureLane(FetchLane& lane, const ProbeOptions& options, const base::Clock& clock);

// Bytes per second that a lane of this kind gives on a machine of today, 0 where the kind is unknown.
double ExpectedRate(std::string_view kind);

// The order in which measured lanes are to be used, as their places in the given one: first the first of those that
// give at least half of the best rate, then the same among the rest. A probe is a few fetches on a machine that may be
// busy: a smaller difference decides nothing against the order that was asked for.
std::vector<size_t> OrderByRate(std::span<const double> bytes_per_second);

// UNAVAILABLE, with both rates, below a tenth of what is expected.
absl::Status CheckRate(std::string_view kind, double bytes_per_second);

}  // namespace tandem::kvtransfer

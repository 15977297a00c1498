// Opens the lanes to a prefill worker that has been greeted: the kinds both sides offer, in this side's order, each
// tried with a warm-up fetch whose rate is measured. A lane that cannot be opened, or is far slower than its kind must
// be, is refused with its reason and not used.
// Tested by //tests/workers (real UCX sources).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "kvtransfer/lane_set.h"
#include "kvtransfer/transfer_target.h"
#include "proto/kv_transfer.pb.h"

namespace tandem::decode {

struct LaneWiringOptions {
  std::vector<std::string> kinds;  // in order of preference
  std::string net_devices = "all";
  uint64_t target_incarnation = 0;
  // Where fetches land: the KV pool, then warm_up_bytes of scratch from warm_up_offset on. No fetch of the warm-up ever
  // touches the pool, which other transfers are using.
  std::span<std::byte> target;
  uint64_t warm_up_offset = 0;
  uint64_t warm_up_bytes = 0;
  absl::Duration warm_up_timeout = absl::Seconds(2);
};

struct WiredPeer {
  kvtransfer::SourcePeer source;  // its lanes are those that work, best first; possibly none
  kvtransfer::RankLanes lanes;
  std::vector<std::string> refusals;  // "ucx_shm: why it is not used"
};

// Blocks until every lane was tried: not for the engine's thread.
WiredPeer WirePeer(const proto::HelloReply& reply, uint64_t session, const LaneWiringOptions& options,
                   const base::Clock& clock);

}  // namespace tandem::decode

// Opens the lanes to a prefill worker that has been greeted: the kinds both sides offer, each tried with warm-up
// fetches whose rate is measured. The measured rate orders them, and this side's order where the rate does not decide.
// A lane that cannot be opened, or is far slower than its kind must be, is refused with its reason and not used. Tested
// by lane_wiring_test.cc and //tests/workers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "kvtransfer/fault_spec.h"
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
  // Faults for every lane, after it was measured; none where it is not set.
  std::optional<kvtransfer::FaultSpec> faults;
};

struct WiredPeer {
  kvtransfer::SourcePeer source;  // its lanes are those that work, best first; possibly none. detail: see DescribeLanes
  kvtransfer::RankLanes lanes;
  std::vector<std::string> refusals;  // "tcp: why it is not used", of the kinds that the peer offers
};

// "ucx_shm 3021 MB/s; refused: tcp: tcp lane gives 3 MB/s, at least 20 MB/s are expected".
std::string DescribeLanes(const WiredPeer& wired);

// Blocks until every lane was tried: not for the engine's thread.
WiredPeer WirePeer(const proto::HelloReply& reply, uint64_t session, const LaneWiringOptions& options,
                   const base::Clock& clock);

}  // namespace tandem::decode

// Which faults a FaultLane injects: by chance from a seed, or by script for the n-th fetch. Operators give it as text
// (process.fault_lane): "seed=7,drop=0.01,delay=0.1,delay_time=20ms,corrupt=0.001,at=12:drop,at=40:stall".
// Tested by fault_spec_test.cc.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::kvtransfer {

enum class Fault {
  kNone,
  kDrop,       // the fetch is never carried out; it ends by Cancel or Close alone
  kFail,       // ends with UNAVAILABLE; the bytes may or may not have moved
  kDelay,      // starts delay_time late
  kReorder,    // starts after the next fetch has started, or after delay_time where there is none
  kDuplicate,  // is carried out twice, as after a lost confirmation; ends once, after both
  kCorrupt,    // one bit of the target is flipped before the fetch ends with OK
  kStall,      // from this fetch on nothing starts for delay_time, as when a peer is stopped and resumed
};

std::string_view FaultName(Fault fault);

struct FaultSpec {
  uint64_t seed = 1;
  std::map<Fault, double> probability;  // of each fault, in [0, 1]; together at most 1
  std::map<uint64_t, Fault> script;     // by number of the fetch, from 0; goes before chance
  absl::Duration delay_time = absl::Milliseconds(10);

  // The fault of fetch number `index`: a pure function.
  Fault FaultOf(uint64_t index) const;
  // `num_choices` equally likely values from the same seed, for what else is random about fetch `index`.
  uint64_t Pick(uint64_t index, uint64_t num_choices) const;
};

// INVALID_ARGUMENT naming the part that is wrong. Empty text: no faults.
absl::StatusOr<FaultSpec> ParseFaultSpec(std::string_view text);

}  // namespace tandem::kvtransfer

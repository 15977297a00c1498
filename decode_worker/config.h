// The decode worker's configuration; docs/configuration.md is generated from it. Tested by config_test.cc.
#pragma once

#include <algorithm>
#include <string>

#include "absl/time/time.h"
#include "base/config.h"
#include "decode_worker/hisparse/pool_sizes.h"
#include "worker_shell/worker_config.h"

namespace tandem::decode {

struct DecodeConfig : worker_shell::WorkerConfig {
  int num_ranks() const { return std::max(data_parallel_size, tensor_parallel_size); }

  DecodeConfig() {
    rpc_port = 8102;
    admin_port = 9102;
  }

  int replay_tokens_per_step = 64;
  bool speculative_adaptive = true;
  bool prefix_cache_generated_tokens = false;
  absl::Duration router_grace = absl::Seconds(2);
  int64_t retraction_host_tokens = 16384;  // 0: retracted sequences are computed again
  HiSparseSettings hisparse;
  std::string fault_lane;  // kvtransfer::FaultSpec as text; empty: no faults
};

// `config` outlives the schema.
void AddFields(base::ConfigSchema& schema, DecodeConfig& config);
// What single ranges cannot say. INVALID_ARGUMENT naming the fields.
absl::Status Validate(const DecodeConfig& config);

}  // namespace tandem::decode

// The prefill worker's configuration; docs/configuration.md is generated from it. Tested by config_test.cc.
#pragma once

#include <algorithm>
#include <string>

#include "absl/time/time.h"
#include "base/config.h"
#include "worker_shell/worker_config.h"

namespace tandem::prefill {

struct PrefillConfig : worker_shell::WorkerConfig {
  PrefillConfig() {
    rpc_port = 8101;
    admin_port = 9101;
    max_running_requests = 32;
  }

  std::string advertise_host = "127.0.0.1";
  int bootstrap_port = 8998;
  int lane_port = 0;
  int chunked_prefill_size = 512;
  int context_parallel_size = 1;
  std::string context_parallel_strategy = "interleave";
  std::string context_parallel_kv = "copied";  // or "shared"
  int num_ranks() const { return std::max({context_parallel_size, data_parallel_size, tensor_parallel_size}); }
  absl::Duration lease = absl::Seconds(2);
};

// `config` outlives the schema.
void AddFields(base::ConfigSchema& schema, PrefillConfig& config);
// What single ranges cannot say. INVALID_ARGUMENT naming the fields.
absl::Status Validate(const PrefillConfig& config);

}  // namespace tandem::prefill

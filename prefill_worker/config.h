// The prefill worker's configuration; docs/configuration.md is generated from it. Tested by config_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/config.h"
#include "worker_shell/cluster_config.h"

namespace tandem::prefill {

struct PrefillConfig {
  worker_shell::ClusterConfig cluster;

  std::string instance;  // empty: "<host name>:<rpc port>"
  std::string listen_host = "0.0.0.0";
  std::string advertise_host = "127.0.0.1";
  int rpc_port = 8101;
  int bootstrap_port = 8998;
  std::string admin_host = "0.0.0.0";
  int admin_port = 9101;
  int64_t kv_cache_tokens = 16384;
  int chunked_prefill_size = 512;
  int max_running_requests = 32;
  int max_queued_requests = 256;
  std::vector<std::string> lanes = {"ucx_shm", "ucx_am"};
  std::string net_devices = "all";
  absl::Duration heartbeat_interval = absl::Milliseconds(250);
  absl::Duration peer_silence_max = absl::Milliseconds(750);
  absl::Duration router_silence_max = absl::Seconds(2);
  absl::Duration lease = absl::Seconds(2);
  absl::Duration engine_stall_max = absl::Seconds(30);
  absl::Duration drain_timeout = absl::Seconds(30);
};

// `config` outlives the schema.
void AddFields(base::ConfigSchema& schema, PrefillConfig& config);
// What single ranges cannot say. INVALID_ARGUMENT naming the fields.
absl::Status Validate(const PrefillConfig& config);

}  // namespace tandem::prefill

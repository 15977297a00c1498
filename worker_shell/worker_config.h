// The settings that both kinds of workers have, with one sentence and one rule for each.
// Tested by prefill_worker/config_test.cc and decode_worker/config_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/config.h"
#include "base/peer_security.h"
#include "worker_shell/cluster_config.h"

namespace tandem::worker_shell {

struct WorkerConfig {
  ClusterConfig cluster;

  std::string instance;  // empty: "<host name>:<rpc port>"
  std::string listen_host = "127.0.0.1";
  base::PeerSecurityConfig peers;
  int rpc_port = 0;
  std::string admin_host = "0.0.0.0";
  int admin_port = 0;
  std::string schedule_policy = "fcfs";  // or "priority": request_order.h
  std::string device = "cpu";
  int num_threads = 0;  // 0: every processor that the process may use
  int data_parallel_size = 1;
  int tensor_parallel_size = 1;
  int expert_parallel_size = 1;
  int pipeline_parallel_size = 1;
  int pipeline_parallel_micro_batch_size = 64;
  int pipeline_parallel_async_depth = 1;
  std::string instruction_level = "auto";
  int64_t kv_cache_tokens = 16384;
  int max_running_requests = 0;  // each kind of worker has its own field and meaning
  int max_queued_requests = 256;
  std::vector<std::string> lanes = {"ucx_shm", "tcp"};
  std::string net_devices = "all";
  absl::Duration heartbeat_interval = absl::Milliseconds(250);
  absl::Duration peer_silence_max = absl::Milliseconds(750);
  absl::Duration router_silence_max = absl::Seconds(2);
  absl::Duration engine_stall_max = absl::Seconds(30);
  absl::Duration drain_timeout = absl::Seconds(30);
  bool prefix_cache = true;
  int64_t prefix_cache_tokens_max = 0;  // 0: as many as the pool holds
};

// `config` outlives the schema.
void AddWorkerFields(base::ConfigSchema& schema, WorkerConfig& config);
// What single ranges cannot say. INVALID_ARGUMENT naming the fields.
absl::Status ValidateWorker(const WorkerConfig& config);
// Whether the worker can run on as many ranks as these fields ask for, at most one of which may be above 1.
struct RankField {
  absl::string_view name;
  int size = 1;
};
absl::Status ValidateRanks(const WorkerConfig& config, absl::Span<const RankField> fields);

}  // namespace tandem::worker_shell

#include "worker_shell/worker_config.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "kvcache/kv_layout.h"
#include "kvtransfer/lane_end.h"
#include "worker_shell/device_name.h"

namespace tandem::worker_shell {

void AddWorkerFields(base::ConfigSchema& schema, WorkerConfig& config) {
  AddClusterFields(schema, config.cluster);
  schema.String("process.instance", &config.instance,
                "Stable name of this worker, unique in the cluster; empty takes <host name>:<rpc port>.");
  schema.String(
      "process.listen_host", &config.listen_host,
      "Address at which the ports for other services are opened. One that other machines reach needs process.peers.");
  base::AddPeerSecurityFields(schema, config.peers, /*listens=*/true);
  schema.Int("process.rpc_port", &config.rpc_port, {.unit = "port", .min = 0, .max = 65535},
             "Port of the gRPC server for routers; 0 takes a free one.");
  schema.String("process.admin_host", &config.admin_host, "Address of /health, /readyz, /metrics and /statusz.");
  schema.Int("process.admin_port", &config.admin_port, {.unit = "port", .min = 0, .max = 65535},
             "Port of /health, /readyz, /metrics and /statusz; 0 takes a free one.");
  schema.Choice(
      "process.schedule_policy", &config.schedule_policy, {"fcfs", "priority"},
      "In which order requests take pages: of arrival, or higher priority first; then a request that 16 later ones "
      "have "
      "overtaken goes first. At prefill a short prompt shares steps with a long one either way; at decode the youngest "
      "gives way where pages run out, of the lowest priority.");
  schema.String("process.device", &config.device,
                "Where the model runs: cpu, or cuda:N, the N-th CUDA device that this process sees (compute capability "
                "9.0). Both workers of a pair run on the same kind of device.");
  schema.Int("process.num_threads", &config.num_threads, {.unit = "threads", .min = 0, .max = 1024},
             "With device cpu, threads that share the arithmetic of a step; 0 takes every processor that this process "
             "may use. Tokens do "
             "not depend on it. Workers that share a host and are busy at the same time do better with a part each.");
  schema.Int("process.data_parallel_size", &config.data_parallel_size, {.unit = "ranks", .min = 1, .max = 64},
             "Ranks among which the sequences of every step are dealt out (data-parallel attention): threads of this "
             "process, which divide process.num_threads among them and share its KV pool. Tokens and KV bytes do not "
             "depend on it.");
  schema.Int(
      "process.tensor_parallel_size", &config.tensor_parallel_size, {.unit = "ranks", .min = 1, .max = 64},
      "Ranks that divide the outputs of every layer (tensor parallelism): heads, MLPs' width, vocabulary. Threads "
      "of this process, which divide process.num_threads among them and keep a KV pool each. Tokens and KV bytes "
      "do not depend on it.");
  schema.Int("process.expert_parallel_size", &config.expert_parallel_size, {.unit = "ranks", .min = 1, .max = 64},
             "1: every rank computes its rows' experts itself. As many as the worker has ranks: each rank has a part "
             "of the experts, and rows travel to them. Tokens do not depend on it.");
  schema.Int("process.pipeline_parallel_size", &config.pipeline_parallel_size, {.unit = "stages", .min = 1, .max = 64},
             "Stages among which the layers are divided: threads of this process, which divide process.num_threads "
             "among them and share its KV pool. Tokens and KV bytes do not depend on it.");
  schema.Int("process.pipeline_parallel_micro_batch_size", &config.pipeline_parallel_micro_batch_size,
             {.unit = "tokens", .min = 1, .max = 65536},
             "Rows of a step that go through a stage at once; stages work at the same time where a step has more.");
  schema.Int("process.pipeline_parallel_async_depth", &config.pipeline_parallel_async_depth,
             {.unit = "micro-batches", .min = 1, .max = 64}, "How many of these may wait between two stages.");
  schema.Choice(
      "process.instruction_level", &config.instruction_level, {"auto", "baseline", "avx2", "avx512", "avx512_bf16"},
      "Instruction set of the arithmetic; auto takes the best that the processor has. Tokens do not depend on "
      "it.");
  schema.Int64("process.kv_cache_tokens", &config.kv_cache_tokens,
               {.unit = "tokens", .min = kvcache::kPageTokens, .max = int64_t{1} << 40},
               "Size of the KV pool, rounded down to whole pages; no sequence can be longer.");
  schema.Int("process.max_queued_requests", &config.max_queued_requests, {.unit = "requests", .min = 1, .max = 65536},
             "Requests that wait for pages; one more is refused with RESOURCE_EXHAUSTED.");
  schema.StringList("process.lanes", &config.lanes,
                    "Ways that KV pages travel, best first where their measured rates are alike: ucx_shm (same host), "
                    "tcp (any; prefill opens a port), ucx_am (active messages of UCX over TCP; its port may be "
                    "reachable by decode workers only: docs/adr/0007-lanes-over-ucx.md).");
  schema.String("process.net_devices", &config.net_devices,
                "Network devices of tcp and ucx_am by their names (eth0,eth1), or all.");
  schema.Duration("process.heartbeat_interval", &config.heartbeat_interval, absl::Milliseconds(10), absl::Minutes(1),
                  "How often routers and workers of the other kind get a sign of life.");
  schema.Duration("process.peer_silence_max", &config.peer_silence_max, absl::Milliseconds(30), absl::Minutes(5),
                  "A worker of the other kind that is silent for longer is not used until it is heard again; prefill "
                  "counts the lease of its pages from there.");
  schema.Duration("process.router_silence_max", &config.router_silence_max, absl::Milliseconds(30), absl::Minutes(5),
                  "A router that has promised heartbeats and is silent for longer loses its stream.");
  schema.Duration("process.engine_stall_max", &config.engine_stall_max, absl::Milliseconds(100), absl::Hours(1),
                  "A worker of the other kind whose engine makes no step for this long though work waits is not used.");
  schema.Duration("process.drain_timeout", &config.drain_timeout, absl::ZeroDuration(), absl::Hours(24),
                  "How long requests may go on after SIGTERM.");
  schema.Bool(
      "process.prefix_cache", &config.prefix_cache,
      "Whether whole pages of prompts are kept for later prompts that begin alike (docs/prefix_cache.md). Tokens "
      "do not depend on it.");
  schema.Int64("process.prefix_cache_tokens_max", &config.prefix_cache_tokens_max,
               {.unit = "tokens", .min = 0, .max = int64_t{1} << 40},
               "The most tokens whose pages are kept for that, rounded down to whole pages; 0: as many as the KV pool "
               "holds. They give way to requests in any case.");
}

absl::Status ValidateRanks(const WorkerConfig& config, absl::Span<const RankField> fields) {
  RankField asked;
  for (const RankField& field : fields) {
    if (field.size == 1) continue;
    if (asked.size > 1) {
      return absl::InvalidArgumentError(absl::StrCat(asked.name, " ", asked.size, " with ", field.name, " ", field.size,
                                                     ": a worker's ranks divide its work in one way"));
    }
    asked = field;
  }
  if (config.pipeline_parallel_size > 1 && config.expert_parallel_size > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "process.expert_parallel_size ", config.expert_parallel_size, " with process.pipeline_parallel_size ",
        config.pipeline_parallel_size, ": each stage has its layers' experts, and no two have the same layer"));
  }
  const int num_ranks = asked.size;
  const absl::string_view size_field = asked.name;
  if (config.expert_parallel_size != 1 && config.expert_parallel_size != num_ranks) {
    return absl::InvalidArgumentError(absl::StrCat("process.expert_parallel_size ", config.expert_parallel_size,
                                                   " is neither 1 nor the worker's number of ranks, ", num_ranks));
  }
  if (num_ranks == 1) return absl::OkStatus();
  if (config.device != "cpu") {
    return absl::InvalidArgumentError(absl::StrCat(size_field, " ", num_ranks, " with process.device ", config.device,
                                                   ": several ranks run with device cpu only"));
  }
  if (config.num_threads != 0 && config.num_threads < num_ranks) {
    return absl::InvalidArgumentError(absl::StrCat("process.num_threads ", config.num_threads, " is less than ",
                                                   size_field, " ", num_ranks, ": a thread for each rank at least"));
  }
  return absl::OkStatus();
}

absl::Status ValidateWorker(const WorkerConfig& config) {
  RETURN_IF_ERROR(ValidateSpeculative(config.cluster.speculative));
  RETURN_IF_ERROR(ParseDeviceName(config.device).status());
  RETURN_IF_ERROR(base::ValidatePeerSecurity(config.peers));
  RETURN_IF_ERROR(base::CheckGuarded(config.peers, "process.listen_host", config.listen_host));
  if (config.lanes.empty()) return absl::InvalidArgumentError("process.lanes names no lane");
  for (const std::string& lane : config.lanes) {
    if (std::find(std::begin(kvtransfer::kLaneKinds), std::end(kvtransfer::kLaneKinds), lane) ==
        std::end(kvtransfer::kLaneKinds)) {
      return absl::InvalidArgumentError(
          absl::StrCat("process.lanes names \"", lane, "\", known are ", absl::StrJoin(kvtransfer::kLaneKinds, ", ")));
    }
  }
  if (config.peer_silence_max < 2 * config.heartbeat_interval) {
    return absl::InvalidArgumentError(absl::StrCat(
        "process.peer_silence_max ", absl::FormatDuration(config.peer_silence_max),
        " is less than two of process.heartbeat_interval ", absl::FormatDuration(config.heartbeat_interval)));
  }
  if (config.prefix_cache_tokens_max > 0 && config.prefix_cache_tokens_max < kvcache::kPageTokens) {
    return absl::InvalidArgumentError(absl::StrCat("process.prefix_cache_tokens_max ", config.prefix_cache_tokens_max,
                                                   ": less than a page of ", kvcache::kPageTokens,
                                                   " tokens; 0 means the whole pool, prefix_cache: false none"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::worker_shell

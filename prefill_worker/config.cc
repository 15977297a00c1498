#include "prefill_worker/config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "kvtransfer/handshake.h"
#include "worker_shell/ports.h"

namespace tandem::prefill {

void AddFields(base::ConfigSchema& schema, PrefillConfig& config) {
  worker_shell::AddWorkerFields(schema, config);
  schema.String("process.advertise_host", &config.advertise_host,
                "Name or address under which decode workers reach this worker; no wildcard.");
  schema.Int("process.bootstrap_port", &config.bootstrap_port, {.unit = "port", .min = 0, .max = 65535},
             "Port at which decode workers greet; 0 takes a free one.");
  schema.Int("process.lane_port", &config.lane_port, {.unit = "port", .min = 0, .max = 65535},
             "Port of the tcp lane; 0 takes a free one.");
  schema.Int("process.chunked_prefill_size", &config.chunked_prefill_size, {.unit = "tokens", .min = 1, .max = 65536},
             "Prompt tokens computed in one engine step, over all requests.");
  schema.Int("process.max_running_requests", &config.max_running_requests, {.unit = "requests", .min = 1, .max = 4096},
             "Requests that share one engine step.");
  schema.Int("process.context_parallel_size", &config.context_parallel_size, {.unit = "ranks", .min = 1, .max = 64},
             "Ranks that share the rows of every step (context parallelism): threads of this process, which divide "
             "process.num_threads among them. Tokens and KV bytes do not depend on it.");
  schema.String("process.context_parallel_strategy", &config.context_parallel_strategy,
                "How rows are dealt out to these ranks. interleave: row i of a step goes to rank i mod "
                "context_parallel_size. zigzag is refused.");
  schema.Choice("process.context_parallel_kv", &config.context_parallel_kv, {"copied", "shared"},
                "Where these ranks keep KV. copied: a pool of process.kv_cache_tokens for each, records are sent to "
                "all. shared: one pool's memory for all of them, nothing is sent.");
  schema.Duration("process.lease", &config.lease, absl::ZeroDuration(), absl::Minutes(5),
                  "How long pages are kept for a decode worker whose stream is gone.");
}

namespace {

absl::Status ValidateContextParallelism(const PrefillConfig& config) {
  const int size = config.context_parallel_size;
  if (config.context_parallel_strategy == "zigzag") {
    return absl::InvalidArgumentError(
        "process.context_parallel_strategy zigzag is not served: a row costs by the positions that it selects, at most "
        "index_topk, so that halves of a prompt paired up balance nothing; interleave does");
  }
  if (config.context_parallel_strategy != "interleave") {
    return absl::InvalidArgumentError(absl::StrCat("process.context_parallel_strategy is \"",
                                                   config.context_parallel_strategy, "\", allowed interleave"));
  }
  RETURN_IF_ERROR(
      worker_shell::ValidateRanks(config, {{"process.context_parallel_size", size},
                                           {"process.data_parallel_size", config.data_parallel_size},
                                           {"process.tensor_parallel_size", config.tensor_parallel_size},
                                           {"process.pipeline_parallel_size", config.pipeline_parallel_size}}));
  if (config.chunked_prefill_size < size) {
    return absl::InvalidArgumentError(absl::StrCat("process.chunked_prefill_size ", config.chunked_prefill_size,
                                                   " is less than process.context_parallel_size ", size,
                                                   ": no step would have a row for every rank"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const PrefillConfig& config) {
  RETURN_IF_ERROR(worker_shell::ValidateWorker(config));
  RETURN_IF_ERROR(ValidateContextParallelism(config));
  RETURN_IF_ERROR(worker_shell::CheckPortsDiffer({{"process.rpc_port", config.listen_host, config.rpc_port},
                                                  {"process.bootstrap_port", config.listen_host, config.bootstrap_port},
                                                  {"process.lane_port", config.listen_host, config.lane_port},
                                                  {"process.admin_port", config.admin_host, config.admin_port}}));
  if (std::count(config.advertise_host.begin(), config.advertise_host.end(), ':') == 1) {
    return absl::InvalidArgumentError(absl::StrCat("process.advertise_host \"", config.advertise_host,
                                                   "\": a host alone; the port is process.bootstrap_port"));
  }
  // Port 0 is replaced by the one that was taken; any other stands for it here.
  const std::string told = base::HostPort{config.advertise_host, std::max(config.bootstrap_port, 1)}.ToString();
  if (const absl::Status status = kvtransfer::ValidateAdvertisedAddress(told); !status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("process.advertise_host \"", config.advertise_host, "\": ", status.message()));
  }
  return absl::OkStatus();
}

}  // namespace tandem::prefill

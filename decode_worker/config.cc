#include "decode_worker/config.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "decode_worker/running_limit.h"
#include "kvtransfer/fault_spec.h"
#include "worker_shell/ports.h"

namespace tandem::decode {

void AddFields(base::ConfigSchema& schema, DecodeConfig& config) {
  worker_shell::AddWorkerFields(schema, config);
  schema.Int("process.max_running_requests", &config.max_running_requests,
             {.unit = "requests", .min = 0, .max = kRunningSequencesMax},
             "Choices of requests that hold pages at a time, running or with their prompt under way; 0: as many as "
             "memory allows, which the log and /statusz explain (docs/operations.md).");
  schema.Int("process.replay_tokens_per_step", &config.replay_tokens_per_step,
             {.unit = "tokens", .min = 0, .max = 65536},
             "Rows of a step, beside one for each running request, for tokens that are computed again after a "
             "retraction or a failover.");
  schema.Int64(
      "process.retraction_host_tokens", &config.retraction_host_tokens,
      {.unit = "tokens", .min = 0, .max = int64_t{1} << 40},
      "Host memory beside the KV pool for the KV of sequences that are retracted, rounded down to whole pages: "
      "they go on from there and not by being computed again. 0, or where it is full: computed again. Tokens "
      "do not depend on it.");
  schema.Bool(
      "process.speculative_adaptive", &config.speculative_adaptive,
      "Where cluster.speculative.num_steps is not 0: draft as many tokens, up to that, as bring the most tokens a "
      "second by what steps and drafts took of late and how many came true; false: always that many. Tokens do "
      "not depend on it.");
  schema.Bool(
      "process.prefix_cache_generated_tokens", &config.prefix_cache_generated_tokens,
      "With process.prefix_cache: pages that generated tokens fill are kept as well, so that the next turn of a "
      "chat does not fetch its last answer again. Tokens do not depend on it.");
  schema.Duration("process.router_grace", &config.router_grace, absl::ZeroDuration(), absl::Minutes(5),
                  "How long the requests of a router live on after its stream is lost.");
  schema.Bool("process.hisparse.enabled", &config.hisparse.enabled,
              "Keeps the latent KV of every sequence in host memory and a few selected tokens of each on the device. "
              "Tokens do not depend on it.");
  schema.Int("process.hisparse.top_k", &config.hisparse.top_k, {.unit = "tokens", .min = 0, .max = 65536},
             "Tokens that a row selects: the model's index_topk, which 0 takes; anything else is refused.");
  schema.Int("process.hisparse.device_buffer_size", &config.hisparse.device_buffer_size,
             {.unit = "tokens", .min = 0, .max = 1 << 20},
             "Tokens of one sequence that its device buffer keeps in each layer, beside a page of the newest: a "
             "multiple of 64, at least top_k; 0 takes twice top_k, in whole pages.");
  schema.Double("process.hisparse.host_to_device_ratio", &config.hisparse.host_to_device_ratio,
                {.unit = "", .min = 1, .max = 1000},
                "Size of the pool on the host, in multiples of process.kv_cache_tokens. Device memory stays that of "
                "kv_cache_tokens without HiSparse: what index keys leave of it, buffers share.");
  schema.String("process.fault_lane", &config.fault_lane,
                "Faults that every lane is to suffer, for drills: \"seed=7,drop=0.01,corrupt=0.001,at=12:stall,"
                "delay_time=20ms\" (drop, fail, delay, reorder, duplicate, corrupt, stall); empty for none.");
}

absl::Status Validate(const DecodeConfig& config) {
  RETURN_IF_ERROR(worker_shell::ValidateWorker(config));
  RETURN_IF_ERROR(
      worker_shell::ValidateRanks(config, {{"process.data_parallel_size", config.data_parallel_size},
                                           {"process.tensor_parallel_size", config.tensor_parallel_size},
                                           {"process.pipeline_parallel_size", config.pipeline_parallel_size}}));
  if (config.hisparse.enabled && config.num_ranks() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("process.hisparse.enabled with ", config.num_ranks(), " ranks: device buffers are one rank's"));
  }
  if (config.hisparse.enabled && config.pipeline_parallel_size > 1) {
    return absl::InvalidArgumentError(absl::StrCat("process.hisparse.enabled with process.pipeline_parallel_size ",
                                                   config.pipeline_parallel_size, ": device buffers are one rank's"));
  }
  if (config.prefix_cache_generated_tokens && !config.prefix_cache) {
    return absl::InvalidArgumentError(
        "process.prefix_cache_generated_tokens with process.prefix_cache: false, which keeps no pages");
  }
  if (const absl::Status faults = kvtransfer::ParseFaultSpec(config.fault_lane).status(); !faults.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("process.fault_lane: ", faults.message()));
  }
  return worker_shell::CheckPortsDiffer({{"process.rpc_port", config.listen_host, config.rpc_port},
                                         {"process.admin_port", config.admin_host, config.admin_port}});
}

}  // namespace tandem::decode

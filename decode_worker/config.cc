#include "decode_worker/config.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvtransfer/fault_spec.h"
#include "worker_shell/ports.h"

namespace tandem::decode {

void AddFields(base::ConfigSchema& schema, DecodeConfig& config) {
  worker_shell::AddWorkerFields(schema, config);
  schema.Int("process.replay_tokens_per_step", &config.replay_tokens_per_step,
             {.unit = "tokens", .min = 0, .max = 65536},
             "Rows of a step, beside one for each running request, for tokens that are computed again after a "
             "retraction or a failover.");
  schema.Duration("process.router_grace", &config.router_grace, absl::ZeroDuration(), absl::Minutes(5),
                  "How long the requests of a router live on after its stream is lost.");
  schema.String("process.fault_lane", &config.fault_lane,
                "Faults that every lane is to suffer, for drills: \"seed=7,drop=0.01,corrupt=0.001,at=12:stall,"
                "delay_time=20ms\" (drop, fail, delay, reorder, duplicate, corrupt, stall); empty for none.");
}

absl::Status Validate(const DecodeConfig& config) {
  RETURN_IF_ERROR(worker_shell::ValidateWorker(config));
  if (const absl::Status faults = kvtransfer::ParseFaultSpec(config.fault_lane).status(); !faults.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("process.fault_lane: ", faults.message()));
  }
  return worker_shell::CheckPortsDiffer({{"process.rpc_port", config.listen_host, config.rpc_port},
                                         {"process.admin_port", config.admin_host, config.admin_port}});
}

}  // namespace tandem::decode

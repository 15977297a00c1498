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
  schema.Duration("process.lease", &config.lease, absl::ZeroDuration(), absl::Minutes(5),
                  "How long pages are kept for a decode worker whose stream is gone.");
}

absl::Status Validate(const PrefillConfig& config) {
  RETURN_IF_ERROR(worker_shell::ValidateWorker(config));
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

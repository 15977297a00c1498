// prefill_worker: computes prompts and lets decode workers pull their KV. See README.md.
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/exit_code.h"
#include "base/grpc_log.h"
#include "base/log.h"
#include "base/shutdown.h"
#include "prefill_worker/config.h"
#include "prefill_worker/worker.h"
#include "worker_shell/identity.h"

namespace tandem::prefill {
namespace {

int Main(int argc, char** argv) {
  base::RouteGrpcLog();
  // Debian builds Abseil with the search for lock cycles on: it keeps a graph of all locks, and every lock pays for it.
  // Tests keep it.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  base::ShutdownSignal shutdown;
  PrefillConfig config;
  base::ConfigSchema schema("prefill_worker");
  AddFields(schema, config);
  const auto args = base::LoadConfig(schema, argc, argv);
  if (const absl::Status status = args.ok() ? Validate(config) : args.status(); !status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return base::ExitCode(status);
  }
  if (args->should_exit) return 0;
  base::SetLogContext(
      absl::StrCat("role=prefill instance=", worker_shell::InstanceName(config.instance, config.rpc_port)));
  auto worker = Worker::Start(config, base::RealClock());
  if (!worker.ok()) {
    std::fprintf(stderr, "prefill_worker cannot start: %s\n", worker.status().ToString().c_str());
    return base::ExitCode(worker.status());
  }
  shutdown.Wait();
  LOG_INFO("draining", {"timeout", config.drain_timeout});
  if (const absl::Status status = (*worker)->Drain(config.drain_timeout); !status.ok()) {
    LOG_WARNING("drain ended early", {"status", status});
  }
  worker->reset();
  LOG_INFO("stopped");
  return 0;
}

}  // namespace
}  // namespace tandem::prefill

int main(int argc, char** argv) { return tandem::prefill::Main(argc, argv); }

// The life of a worker's process: configuration, start, SIGTERM, drain, end. Each service's main() calls it.
// Exit codes: base/exit_code.h. Tested by tests/e2e (the real binaries).
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/exit_code.h"
#include "base/grpc_log.h"
#include "base/log.h"
#include "base/shutdown.h"
#include "worker_shell/identity.h"

namespace tandem::worker_shell {

// Worker::Start(config, clock) serves; Worker::Drain(limit) ends its requests. `role`: "prefill", "decode".
// AddFields(schema, config) and Validate(config) are found beside Config.
template <typename Worker, typename Config>
int WorkerMain(int argc, char** argv, const std::string& role) {
  base::RouteGrpcLog();
  // Debian builds Abseil with the search for lock cycles on: it keeps a graph of all locks, and every lock pays for it.
  // Tests keep it.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  base::ShutdownSignal shutdown;
  const std::string service = absl::StrCat(role, "_worker");
  Config config;
  base::ConfigSchema schema(service);
  AddFields(schema, config);
  const auto args = base::LoadConfig(schema, argc, argv);
  if (const absl::Status status = args.ok() ? Validate(config) : args.status(); !status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return base::ExitCode(status);
  }
  if (args->should_exit) return 0;
  base::SetLogContext(absl::StrCat("role=", role, " instance=", InstanceName(config.instance, config.rpc_port)));
  auto worker = Worker::Start(config, base::RealClock());
  if (!worker.ok()) {
    std::fprintf(stderr, "%s cannot start: %s\n", service.c_str(), worker.status().ToString().c_str());
    return base::ExitCode(worker.status());
  }
  shutdown.Started();
  shutdown.Wait();
  LOG_INFO("draining", {"timeout", config.drain_timeout});
  const absl::Status drained = (*worker)->Drain(config.drain_timeout);
  if (!drained.ok()) LOG_WARNING("drain ended early", {"status", drained});
  worker->reset();
  LOG_INFO("stopped");
  return base::ExitCode(drained);
}

}  // namespace tandem::worker_shell

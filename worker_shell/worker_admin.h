// /health, /readyz, /metrics and /statusz of a worker.
#pragma once

#include <functional>
#include <string>

#include "base/admin_http.h"
#include "base/metrics.h"
#include "worker_shell/engine_status.h"

namespace tandem::worker_shell {

// `title` and `links` (who is connected, a line each) open /statusz. All outlive the handlers.
base::AdminHandlers WorkerAdminHandlers(std::string title, std::function<std::string()> links,
                                        const EngineStatus& status, const base::Metrics& metrics);

}  // namespace tandem::worker_shell

#include "worker_shell/trace_log.h"

#include "base/log.h"
#include "proto/trace_context.h"

namespace tandem::worker_shell {

void LogIfTraced(const std::string& request, absl::string_view trace_parent, size_t num_prompt_tokens) {
  if (!proto::IsSampled(trace_parent)) return;
  LOG_INFO("request begins", {"req", request}, {"trace", std::string(proto::TraceId(trace_parent))},
           {"prompt_tokens", num_prompt_tokens});
}

}  // namespace tandem::worker_shell

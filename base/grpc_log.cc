#include "base/grpc_log.h"

#include <cstdlib>

#include "base/log.h"
#include "grpc/support/log.h"

namespace tandem::base {
namespace {

LogSeverity SeverityFrom(gpr_log_severity severity) {
  switch (severity) {
    case GPR_LOG_SEVERITY_DEBUG:
    case GPR_LOG_SEVERITY_INFO:
      return LogSeverity::kInfo;
    case GPR_LOG_SEVERITY_ERROR:
      return LogSeverity::kWarning;  // how bad it is, only the caller knows
  }
  return LogSeverity::kWarning;
}

void Forward(gpr_log_func_args* line) {
  Log(SeverityFrom(line->severity), line->file, line->line, "grpc", {{"text", line->message}});
}

void Drop(gpr_log_func_args*) {}

}  // namespace

void RouteGrpcLog() { gpr_set_log_function(std::getenv("GRPC_VERBOSITY") != nullptr ? &Forward : &Drop); }

}  // namespace tandem::base

// The body of POST /workers. Tested by worker_administration_test.cc.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::router {

struct WorkerRequest {
  std::string address;  // host:port in one spelling (base/host_port.h)
  bool is_prefill = false;
};

// {"url": "host:port", with or without grpc:// or http://, "worker_type": "prefill" or "decode"}. INVALID_ARGUMENT as
// an OpenAI error that names the field.
absl::StatusOr<WorkerRequest> ParseWorkerRequest(absl::string_view body);

}  // namespace tandem::router

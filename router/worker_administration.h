// /workers: who the workers are, as this shard sees them, and by hand one more, one less, one to drain (docs/api.md).
//
// Changes go to the directory, which tells every shard; they hold until this router ends, and no other router hears of
// them. Pure functions of what is handed in. Tested by worker_administration_test.cc and tests/e2e/workers_test.py.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "router/cluster_view.h"
#include "router/discovery/worker_directory.h"

namespace tandem::router {

// A worker's id is its address, host:port. A worker that has been removed is shown until it has left.
std::string WorkersBody(const ClusterView& view, const std::string& model);
// NOT_FOUND where nobody has that id.
absl::StatusOr<std::string> WorkerBody(const ClusterView& view, const std::string& model, absl::string_view id);

// body: {"url": "host:port" or "grpc://host:port", "worker_type": "prefill" or "decode"}. Adding one that drains ends
// its drain. The answer's body. INVALID_ARGUMENT names the field.
absl::StatusOr<std::string> AddWorker(absl::string_view body, WorkerDirectory& directory);
// Only what was added here; INVALID_ARGUMENT for a worker that another source lists, NOT_FOUND for one that none does.
absl::StatusOr<std::string> RemoveWorker(absl::string_view id, WorkerDirectory& directory);
// This router gives it nothing new, whoever lists it. NOT_FOUND as above.
absl::StatusOr<std::string> DrainWorker(absl::string_view id, WorkerDirectory& directory);

}  // namespace tandem::router

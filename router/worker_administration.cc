#include "router/worker_administration.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/openai/api_error.h"
#include "router/openai/json_text.h"
#include "router/openai/worker_request.h"
#include "router/worker_state.h"

namespace tandem::router {
namespace {

void AppendWorker(std::string& out, const WorkerView& worker, const char* role, const std::string& model) {
  const bool takes_requests = worker.is_up && !worker.is_draining && !worker.is_removed;
  absl::StrAppend(&out, "{\"id\":", JsonString(worker.address),
                  ",\"url\":", JsonString(absl::StrCat("grpc://", worker.address)), ",\"model_id\":", JsonString(model),
                  ",\"worker_type\":\"", role,
                  "\",\"connection_mode\":\"grpc\",\"is_healthy\":", takes_requests ? "true" : "false", ",\"state\":\"",
                  WorkerStateName(StateOf(worker)), "\",\"detail\":", JsonString(worker.detail),
                  ",\"instance\":", JsonString(worker.instance), ",\"load\":", worker.requests_in_flight, "}");
}

// Every worker that is at a place: visit(worker, role).
void ForEach(const ClusterView& view, auto&& visit) {
  for (const PrefillView& worker : view.prefills) {
    if (!worker.address.empty()) visit(worker, "prefill");
  }
  for (const DecodeView& worker : view.decodes) {
    if (!worker.address.empty()) visit(worker, "decode");
  }
}

std::string Accepted(absl::string_view address, absl::string_view what) {
  return absl::StrCat("{\"status\":\"accepted\",\"worker_id\":", JsonString(address), ",\"message\":\"", what, "\"}");
}

}  // namespace

std::string WorkersBody(const ClusterView& view, const std::string& model) {
  std::string workers;
  int num_prefill = 0, num_decode = 0;
  ForEach(view, [&](const WorkerView& worker, absl::string_view role) {
    if (!workers.empty()) workers += ',';
    AppendWorker(workers, worker, role.data(), model);
    ++(role == "prefill" ? num_prefill : num_decode);
  });
  return absl::StrCat("{\"workers\":[", workers, "],\"total\":", num_prefill + num_decode,
                      ",\"stats\":{\"prefill_count\":", num_prefill, ",\"decode_count\":", num_decode,
                      ",\"regular_count\":0}}");
}

absl::StatusOr<std::string> WorkerBody(const ClusterView& view, const std::string& model, absl::string_view id) {
  std::string found;
  ForEach(view, [&](const WorkerView& worker, const char* role) {
    if (worker.address == id) AppendWorker(found, worker, role, model);
  });
  if (found.empty()) return absl::NotFoundError(absl::StrCat("there is no worker ", Quoted(id)));
  return found;
}

absl::StatusOr<std::string> AddWorker(absl::string_view body, WorkerDirectory& directory) {
  ASSIGN_OR_RETURN(const WorkerRequest request, ParseWorkerRequest(body));
  const WorkerRole role = request.is_prefill ? WorkerRole::kPrefill : WorkerRole::kDecode;
  RETURN_IF_ERROR(directory.Add(role, request.address));
  return Accepted(request.address, "the router connects to it");
}

absl::StatusOr<std::string> RemoveWorker(absl::string_view id, WorkerDirectory& directory) {
  RETURN_IF_ERROR(directory.Remove(std::string(id)));
  return Accepted(id, "it gets nothing new and leaves when its requests have ended");
}

absl::StatusOr<std::string> DrainWorker(absl::string_view id, WorkerDirectory& directory) {
  RETURN_IF_ERROR(directory.Drain(std::string(id)));
  return Accepted(id, "it gets nothing new and leaves when its requests have ended");
}

}  // namespace tandem::router

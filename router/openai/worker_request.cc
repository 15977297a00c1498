#include "router/openai/worker_request.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "boost/json.hpp"
#include "router/openai/api_error.h"
#include "router/openai/json_body.h"
#include "router/openai/json_fields.h"

namespace tandem::router {
namespace {

namespace json = boost::json;

absl::StatusOr<std::string> AddressOf(absl::string_view url) {
  for (const absl::string_view scheme : {"grpc://", "http://"}) {
    if (absl::ConsumePrefix(&url, scheme)) break;
  }
  absl::ConsumeSuffix(&url, "/");
  ASSIGN_OR_RETURN(const base::HostPort parsed, base::ParseHostPort(url));
  if (base::IsWildcard(parsed.host)) return absl::InvalidArgumentError("cannot be connected to");
  return parsed.ToString();
}

absl::Status ReadWorkerRequest(const json::object& body, WorkerRequest* request) {
  ASSIGN_OR_RETURN(const std::optional<std::string> url, OptionalString(body, "url", "url"));
  if (!url.has_value()) return FieldError("url", "is required: host:port of the worker's gRPC service");
  const absl::StatusOr<std::string> address = AddressOf(*url);
  if (!address.ok()) return FieldError("url", std::string(address.status().message()));
  request->address = *address;
  ASSIGN_OR_RETURN(const std::optional<std::string> type, OptionalString(body, "worker_type", "worker_type"));
  if (type != "prefill" && type != "decode") {
    const std::string got = type.has_value() ? absl::StrCat(", got ", Quoted(*type)) : "";
    return FieldError("worker_type", absl::StrCat("must be prefill or decode", got));
  }
  request->is_prefill = type == "prefill";
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WorkerRequest> ParseWorkerRequest(absl::string_view body) {
  WorkerRequest request;
  RETURN_IF_ERROR(
      ReadJsonBody(body, [&request](const json::object& object) { return ReadWorkerRequest(object, &request); }));
  return request;
}

}  // namespace tandem::router

#include "router/openai/api_error.h"

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "router/openai/json_text.h"

namespace tandem::router {
namespace {

constexpr char kParamPayload[] = "tandem/param";
constexpr char kCodePayload[] = "tandem/code";
constexpr char kRetryAfterPayload[] = "tandem/retry_after";  // whole seconds, in decimal

struct ErrorClass {
  absl::StatusCode status_code;
  int http_status;
  const char* type;  // error.type of the OpenAI API
  const char* code;  // error.code where the status names none
};

// docs/architecture.md, Errors: the code carries the action.
constexpr ErrorClass kErrorClasses[] = {
    {absl::StatusCode::kInvalidArgument, 400, "invalid_request_error", nullptr},
    {absl::StatusCode::kUnauthenticated, 401, "authentication_error", "invalid_api_key"},
    {absl::StatusCode::kPermissionDenied, 403, "permission_error", "permission_denied"},
    {absl::StatusCode::kNotFound, 404, "invalid_request_error", "not_found"},
    {absl::StatusCode::kUnimplemented, 405, "invalid_request_error", "method_not_allowed"},
    {absl::StatusCode::kOutOfRange, 413, "invalid_request_error", "request_too_large"},
    {absl::StatusCode::kResourceExhausted, 429, "rate_limit_error", "rate_limit_exceeded"},
    {absl::StatusCode::kCancelled, 499, "request_cancelled", "request_cancelled"},
    {absl::StatusCode::kDataLoss, 500, "server_error", "data_loss"},
    {absl::StatusCode::kInternal, 500, "server_error", "internal_error"},
    {absl::StatusCode::kUnavailable, 503, "service_unavailable_error", "service_unavailable"},
    {absl::StatusCode::kAborted, 503, "service_unavailable_error", "stale_attempt"},
    {absl::StatusCode::kFailedPrecondition, 503, "service_unavailable_error", "layouts_differ"},
    {absl::StatusCode::kDeadlineExceeded, 504, "timeout_error", "deadline_exceeded"},
};
constexpr ErrorClass kOurBug = {absl::StatusCode::kUnknown, 500, "server_error", "internal_error"};

const ErrorClass& ClassOf(absl::StatusCode code) {
  for (const ErrorClass& entry : kErrorClasses) {
    if (entry.status_code == code) return entry;
  }
  return kOurBug;
}

void AppendNullableString(std::string& out, const std::optional<std::string>& value) {
  if (value.has_value()) {
    AppendJsonString(out, *value);
  } else {
    out += "null";
  }
}

std::optional<std::string> Payload(const absl::Status& status, const char* name) {
  const absl::optional<absl::Cord> payload = status.GetPayload(name);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

}  // namespace

std::string Quoted(absl::string_view text) {
  constexpr size_t kShownMax = 64;
  if (text.size() <= kShownMax) return absl::StrCat("\"", text, "\"");
  size_t size = kShownMax;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;  // not inside a character
  return absl::StrCat("\"", text.substr(0, size), "\"...");
}

absl::Status FieldError(const std::string& param, const std::string& what) {
  return WithDetails(absl::InvalidArgumentError(absl::StrCat(param, ": ", what)), param, "");
}

absl::Status WithDetails(absl::Status status, const std::string& param, const std::string& code) {
  if (!param.empty()) status.SetPayload(kParamPayload, absl::Cord(param));
  if (!code.empty()) status.SetPayload(kCodePayload, absl::Cord(code));
  return status;
}

absl::Status WithRetryAfter(absl::Status status, absl::Duration after) {
  status.SetPayload(kRetryAfterPayload, absl::Cord(absl::StrCat(absl::ToInt64Seconds(after))));
  return status;
}

absl::Duration RetryAfterOf(const absl::Status& status) {
  int64_t seconds = 0;
  const std::optional<std::string> payload = Payload(status, kRetryAfterPayload);
  return payload.has_value() && absl::SimpleAtoi(*payload, &seconds) ? absl::Seconds(seconds)
                                                                     : absl::InfiniteDuration();
}

int HttpStatusOf(const absl::Status& status) { return status.ok() ? 200 : ClassOf(status.code()).http_status; }

std::string ErrorBody(const absl::Status& status) {
  const ErrorClass& error_class = ClassOf(status.code());
  std::optional<std::string> code = Payload(status, kCodePayload);
  if (!code.has_value() && error_class.code != nullptr) code = error_class.code;
  std::string out = "{\"error\":{\"message\":";
  AppendJsonString(out, std::string(status.message()));
  absl::StrAppend(&out, ",\"type\":\"", error_class.type, "\",\"param\":");
  AppendNullableString(out, Payload(status, kParamPayload));
  out += ",\"code\":";
  AppendNullableString(out, code);
  out += "}}";
  return out;
}

}  // namespace tandem::router

#include "router/cors.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tandem::router {
namespace {

constexpr char kAnyOrigin[] = "*";
constexpr char kUsualHeaders[] = "authorization, content-type, x-request-id";

bool IsOrigin(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "http://") && !absl::ConsumePrefix(&text, "https://")) return false;
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == ':' || c == '[' || c == ']';
  });
}

// A list of header names, and nothing that could be more than that.
bool IsHeaderList(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == ',' || c == ' ';
  });
}

}  // namespace

absl::Status CorsPolicy::Validate(const std::vector<std::string>& allowed_origins) {
  for (const std::string& origin : allowed_origins) {
    if (origin == kAnyOrigin || IsOrigin(origin)) continue;
    return absl::InvalidArgumentError(absl::StrCat("process.cors.allowed_origins: ", origin,
                                                   " is neither * nor an origin as https://host or https://host:port"));
  }
  return absl::OkStatus();
}

bool CorsPolicy::Allows(absl::string_view origin) const {
  if (origin.empty()) return false;
  return std::any_of(origins_.begin(), origins_.end(),
                     [origin](const std::string& allowed) { return allowed == kAnyOrigin || allowed == origin; });
}

std::vector<std::pair<std::string, std::string>> CorsPolicy::HeadersFor(const HttpRequest& request) const {
  if (origins_.empty()) return {};
  const absl::string_view origin = request.Header("origin");
  if (!Allows(origin)) return {{"Vary", "Origin"}};
  const bool is_for_all = std::find(origins_.begin(), origins_.end(), kAnyOrigin) != origins_.end();
  return {{"Vary", "Origin"},
          {"Access-Control-Allow-Origin", is_for_all ? kAnyOrigin : std::string(origin)},
          {"Access-Control-Expose-Headers", "x-request-id, retry-after"}};
}

bool CorsPolicy::IsPreflight(const HttpRequest& request) const {
  return request.method == "OPTIONS" && !request.Header("access-control-request-method").empty() &&
         Allows(request.Header("origin"));
}

HttpResponse CorsPolicy::PreflightAnswer(const HttpRequest& request, const std::string& methods) {
  const absl::string_view asked = request.Header("access-control-request-headers");
  HttpResponse response;
  response.content_type = "text/plain; charset=utf-8";
  response.headers = {{"Access-Control-Allow-Methods", methods},
                      {"Access-Control-Allow-Headers", IsHeaderList(asked) ? std::string(asked) : kUsualHeaders},
                      {"Access-Control-Max-Age", "600"}};
  return response;
}

}  // namespace tandem::router

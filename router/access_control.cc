#include "router/access_control.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "router/openai/api_error.h"

namespace tandem::router {

absl::StatusOr<std::vector<std::string>> LoadAccessKeys(const std::string& file, const std::string& variable) {
  std::vector<std::string> keys;
  if (!file.empty()) {
    ASSIGN_OR_RETURN(keys, base::ReadAccessKeyFile(file));
  }
  if (!variable.empty()) {
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr) {
      return absl::NotFoundError(absl::StrCat("environment variable ", variable, " of access keys is not set"));
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> more,
                     base::ParseAccessKeys(value, absl::StrCat("environment variable ", variable)));
    keys.insert(keys.end(), more.begin(), more.end());
  }
  return keys;
}

AccessControl::AccessControl(const std::vector<std::string>& client_keys, const std::vector<std::string>& admin_keys)
    : client_keys_(client_keys), admin_keys_(admin_keys) {}

absl::Status AccessControl::Check(RouteAccess access, absl::string_view authorization) const {
  const bool takes_admins_alone = access == RouteAccess::kAdmin && !admin_keys_.empty();
  if (access == RouteAccess::kOpen || (!takes_admins_alone && client_keys_.empty())) return absl::OkStatus();
  if (authorization.empty()) {
    return absl::UnauthenticatedError("no API key; send it as Authorization: Bearer <key>");
  }
  const absl::string_view key = base::BearerKey(authorization);
  if (key.empty()) return absl::UnauthenticatedError("Authorization must be Bearer <key>");
  const bool is_admin = admin_keys_.Has(key);
  const bool is_client = client_keys_.Has(key);
  if (is_admin || (is_client && !takes_admins_alone)) return absl::OkStatus();
  if (is_client) return absl::UnauthenticatedError("this path takes an administrator's key");
  return absl::UnauthenticatedError("incorrect API key");
}

}  // namespace tandem::router

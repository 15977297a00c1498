#include "router/access_control.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "router/openai/api_error.h"

namespace tandem::router {

namespace {

bool ParsePriority(absl::string_view text, Priority& priority) {
  for (const auto& [name, value] :
       {std::pair("low", Priority::kLow), std::pair("normal", Priority::kNormal), std::pair("high", Priority::kHigh)}) {
    if (text != name) continue;
    priority = value;
    return true;
  }
  return false;
}

absl::StatusOr<std::vector<std::string>> LoadKeys(const std::string& file, const std::string& variable,
                                                  std::vector<std::string>* attributes) {
  std::vector<std::string> keys;
  if (!file.empty()) {
    ASSIGN_OR_RETURN(keys, base::ReadAccessKeyFile(file, attributes));
  }
  if (!variable.empty()) {
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr) {
      return absl::NotFoundError(absl::StrCat("environment variable ", variable, " of access keys is not set"));
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> more,
                     base::ParseAccessKeys(value, absl::StrCat("environment variable ", variable), attributes));
    keys.insert(keys.end(), more.begin(), more.end());
  }
  return keys;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> LoadAccessKeys(const std::string& file, const std::string& variable) {
  return LoadKeys(file, variable, nullptr);
}

absl::StatusOr<ClientKeys> LoadClientKeys(const std::string& file, const std::string& variable) {
  ClientKeys client_keys;
  std::vector<std::string> attributes;
  ASSIGN_OR_RETURN(client_keys.keys, LoadKeys(file, variable, &attributes));
  for (size_t i = 0; i < attributes.size(); ++i) {
    absl::string_view text = attributes[i];
    Priority priority = Priority::kNormal;
    if (!text.empty() && (!absl::ConsumePrefix(&text, "priority=") || !ParsePriority(text, priority))) {
      return absl::InvalidArgumentError(absl::StrCat("behind client key ", i + 1, " of ", attributes.size(), " stands ",
                                                     attributes[i].size(),
                                                     " bytes that are not priority=low, priority=normal or "
                                                     "priority=high"));
    }
    client_keys.priorities.push_back(priority);
  }
  return client_keys;
}

AccessControl::AccessControl(const std::vector<std::string>& client_keys, const std::vector<std::string>& admin_keys)
    : client_keys_(client_keys), priorities_(client_keys.size(), Priority::kNormal), admin_keys_(admin_keys) {}

AccessControl AccessControl::WithPriorities(const ClientKeys& client_keys, const std::vector<std::string>& admin_keys) {
  AccessControl control(client_keys.keys, admin_keys);
  control.priorities_ = client_keys.priorities;
  return control;
}

absl::StatusOr<Caller> AccessControl::Check(RouteAccess access, absl::string_view authorization) const {
  const bool takes_admins_alone = access == RouteAccess::kAdmin && !admin_keys_.empty();
  if (access == RouteAccess::kOpen || (!takes_admins_alone && client_keys_.empty())) return Caller();
  if (authorization.empty()) {
    return absl::UnauthenticatedError("no API key; send it as Authorization: Bearer <key>");
  }
  const absl::string_view key = base::BearerKey(authorization);
  if (key.empty()) return absl::UnauthenticatedError("Authorization must be Bearer <key>");
  const int admin = admin_keys_.Find(key);
  const int client = client_keys_.Find(key);
  if (admin >= 0) return Caller{.key = -1 - admin, .priority = Priority::kHigh};
  if (client >= 0 && !takes_admins_alone) return Caller{.key = 1 + client, .priority = priorities_[client]};
  if (client >= 0) return absl::UnauthenticatedError("this path takes an administrator's key");
  return absl::UnauthenticatedError("incorrect API key");
}

}  // namespace tandem::router

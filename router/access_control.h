// Who may ask what: bearer keys of clients and of administrators.
//
// Keys (base/access_keys.h) come from files or environment variables that the configuration names. Immutable, for any
// thread. Tested by access_control_test.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/access_keys.h"
#include "router/caller.h"

namespace tandem::router {

enum class RouteAccess {
  kOpen,    // probes and metrics: for everybody
  kClient,  // with a client's key, or an administrator's, where there are client keys
  kAdmin,   // with an administrator's key where there are any, else as kClient
};

// Of the file and of the environment variable, as far as they are named ("" = not). NOT_FOUND where what is named is
// not there.
absl::StatusOr<std::vector<std::string>> LoadAccessKeys(const std::string& file, const std::string& variable);

struct ClientKeys {
  std::vector<std::string> keys;
  std::vector<Priority> priorities;  // by key
};
// As LoadAccessKeys; behind a key may stand its priority: "KEY priority=low", normal (the default) or high.
absl::StatusOr<ClientKeys> LoadClientKeys(const std::string& file, const std::string& variable);

class AccessControl final {
 public:
  AccessControl() = default;  // everything is open
  AccessControl(const std::vector<std::string>& client_keys, const std::vector<std::string>& admin_keys);
  // Administrators are of high priority.
  static AccessControl WithPriorities(const ClientKeys& client_keys, const std::vector<std::string>& admin_keys);

  // authorization: the header of that name. UNAUTHENTICATED as an OpenAI error.
  absl::StatusOr<Caller> Check(RouteAccess access, absl::string_view authorization) const;

 private:
  base::AccessKeyDigests client_keys_;
  std::vector<Priority> priorities_;  // of client_keys_
  base::AccessKeyDigests admin_keys_;
};

}  // namespace tandem::router

#include "worker_shell/identity.h"

#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "proto/protocol_version.h"

namespace tandem::worker_shell {

std::string InstanceName(const std::string& configured, int port) {
  if (!configured.empty()) return configured;
  char host_name[256] = "";
  gethostname(host_name, sizeof(host_name) - 1);  // an empty name still tells ports apart
  return absl::StrCat(host_name, ":", port);
}

proto::Identity DrawIdentity(const std::string& instance, const std::string& role, int port) {
  proto::Identity identity;
  identity.set_instance(InstanceName(instance, port));
  identity.set_incarnation(base::RandomId());
  identity.set_role(role);
  identity.set_group(identity.instance());
  identity.set_protocol_version(proto::kProtocolVersion);
  return identity;
}

absl::StatusOr<std::string> HostId() {
  constexpr char kPath[] = "/proc/sys/kernel/random/boot_id";
  std::ifstream file(kPath);
  std::string id;
  if (!std::getline(file, id) || id.empty()) {
    return absl::UnavailableError(absl::StrCat("cannot read ", kPath, ": which host this is stays unknown"));
  }
  return id;
}

}  // namespace tandem::worker_shell

// Who this process is, for handshakes and logs. Tested by identity_test.cc.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/common.pb.h"

namespace tandem::worker_shell {

// The name that is configured, or "<host name>:<port>" where none is.
std::string InstanceName(const std::string& configured, int port);
// A fresh incarnation of that instance.
proto::Identity DrawIdentity(const std::string& instance, const std::string& role, int port);

// Equal in two processes iff they share a kernel: its boot id.
absl::StatusOr<std::string> HostId();

}  // namespace tandem::worker_shell

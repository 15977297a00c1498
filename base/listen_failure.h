// Why an address could not be listened on, for libraries that only say that it could not.
// Tested by listen_failure_test.cc.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "base/host_port.h"

namespace tandem::base {

// After a failure: UNAVAILABLE "cannot listen on HOST:PORT for WHOM: REASON", with the system's reason, found by trying
// to listen as a library would. Where that works by now, it says that the address was taken.
absl::Status ListenFailure(const HostPort& where, const std::string& whom);

}  // namespace tandem::base

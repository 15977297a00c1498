// Starting and ending one gRPC server with one service. Includes gRPC: for .cc files of services only.
// Tested through router_service_test.cc.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/peer_security.h"
#include "grpcpp/grpcpp.h"

namespace tandem::worker_shell {

struct Listener {
  std::unique_ptr<grpc::Server> server;
  int port = 0;
};

// UNAVAILABLE where the address (host:port, port 0: any free one) cannot be listened on, naming it and why. The service
// and `security` outlive the server. Ports are never shared with another process.
absl::StatusOr<Listener> Listen(const std::string& address, grpc::Service& service, base::PeerSecurity& security);

// Cuts every stream and waits until no method runs.
void ShutDown(grpc::Server& server);

}  // namespace tandem::worker_shell

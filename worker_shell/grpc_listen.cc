#include "worker_shell/grpc_listen.h"

#include <chrono>

#include "base/grpc_security.h"
#include "base/host_port.h"
#include "base/listen_failure.h"
#include "base/status_macros.h"

namespace tandem::worker_shell {

absl::StatusOr<Listener> Listen(const std::string& address, grpc::Service& service, base::PeerSecurity& security) {
  Listener listener;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, base::PeerServerCredentials(security), &listener.port);
  // gRPC would share a port with another process and lose half of the connections to it.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(&service);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr || listener.port == 0) {
    ASSIGN_OR_RETURN(const base::HostPort where, base::ParseHostPort(address));
    return base::ListenFailure(where, "routers");
  }
  return listener;
}

void ShutDown(grpc::Server& server) {
  server.Shutdown(std::chrono::system_clock::now());
  server.Wait();
}

}  // namespace tandem::worker_shell

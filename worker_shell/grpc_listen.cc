#include "worker_shell/grpc_listen.h"

#include <chrono>

#include "absl/strings/str_cat.h"

namespace tandem::worker_shell {

absl::StatusOr<Listener> Listen(const std::string& address, grpc::Service& service) {
  Listener listener;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &listener.port);
  // gRPC would share a port with another process and lose half of the connections to it.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(&service);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr || listener.port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": the address is in use or not ours"));
  }
  return listener;
}

void ShutDown(grpc::Server& server) {
  server.Shutdown(std::chrono::system_clock::now());
  server.Wait();
}

}  // namespace tandem::worker_shell

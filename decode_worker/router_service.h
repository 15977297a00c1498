// The decode worker's gRPC server: Live and Bulk of its routers.
//
// Live is worker_shell's; Bulk puts Generates together and hands them on whole. Whatever cannot be taken is answered
// on the same stream with BulkReply, and the request has ended by it; the stream lives on. Tested by
// router_service_test.cc (real gRPC on loopback).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/peer_security.h"
#include "decode_worker/generate_assembler.h"
#include "decode_worker/generate_request.h"
#include "proto/worker.pb.h"
#include "worker_shell/live_options.h"

namespace tandem::decode {

struct RouterServiceOptions {
  base::PeerSecurity* security = nullptr;  // outlives the service
  std::string listen_address;              // host:port; port 0 takes a free one
  worker_shell::LiveOptions live;
  AssemblerLimits assembler;  // of each Bulk stream
};

class RouterService final {
 public:
  // UNAVAILABLE where the address cannot be listened on. `generate` returns RESOURCE_EXHAUSTED where the engine cannot
  // take more; it is called on gRPC's threads and must not block. `clock` outlives the service.
  static absl::StatusOr<std::unique_ptr<RouterService>> Start(RouterServiceOptions options, const base::Clock& clock,
                                                              worker_shell::LiveEvents events,
                                                              std::function<absl::Status(GenerateRequest)> generate);
  // Cuts every stream, tells their loss and stops listening.
  ~RouterService();
  RouterService(const RouterService&) = delete;
  RouterService& operator=(const RouterService&) = delete;

  int port() const;
  int num_routers() const;
  size_t num_queued_bytes() const;  // that wait for routers to read
  void Send(uint64_t stream_id, proto::WorkerMessage message);
  // Tells every router, also those that attach later, that this worker takes no more requests.
  void AnnounceDraining();
  // After a drain: ends the routers' streams behind the last words queued on them, within `limit`.
  void Farewell(absl::Duration limit);

 private:
  class Core;
  explicit RouterService(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace tandem::decode

// The prefill worker's gRPC server for routers: Live, on which they learn of its load and its life.
// Tested by //tests/workers.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/peer_security.h"
#include "proto/worker.pb.h"
#include "worker_shell/live_options.h"

namespace tandem::prefill {

class RouterService final {
 public:
  // listen_address: host:port, port 0 takes a free one. UNAVAILABLE where it cannot be listened on. `security` and
  // `clock` outlive the service.
  static absl::StatusOr<std::unique_ptr<RouterService>> Start(const std::string& listen_address,
                                                              worker_shell::LiveOptions options,
                                                              base::PeerSecurity& security, const base::Clock& clock,
                                                              worker_shell::LiveEvents events);
  // Cuts every stream and stops listening.
  ~RouterService();
  RouterService(const RouterService&) = delete;
  RouterService& operator=(const RouterService&) = delete;

  int port() const;
  int num_routers() const;
  // Dropped where the stream is gone.
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

}  // namespace tandem::prefill

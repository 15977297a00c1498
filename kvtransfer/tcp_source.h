// The source's end of all tcp lanes: one listener and one thread that serves bytes of a KV pool.
//
// Made for ports that anybody can reach: strangers cost one descriptor for at most kGreetingLimit and at most
// kGreetingMax at a time (the oldest goes first, so that a decode worker, which greets at once, gets in past a
// scanner's half-open connections), and they can end nothing. Where the process has no descriptors left, those who wait
// go on waiting. Stop() and the destructor close everything, the listener included. Tested by tcp_source_test.cc
// (strangers), lane_conformance_test.cc and lane_process_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kvtransfer/epoch_check.h"
#include "kvtransfer/lane_end.h"

namespace tandem::kvtransfer {

struct TcpSourceOptions {
  std::span<const std::byte> pool;  // outlives the source
  // Where it listens (empty: the first routable address of net_devices; port 0: a free one), and the host by which
  // decode workers reach it (empty: the one it listens on).
  std::string listen_host;
  int port = 0;
  std::string advertised_host;
  std::string net_devices = "all";  // "eth0", "eth0,eth1"
  EpochCheck is_epoch_readable;     // called on the source's thread
};

class TcpSource final {
 public:
  static constexpr absl::Duration kGreetingLimit = absl::Seconds(2);
  static constexpr size_t kGreetingMax = 64;
  static constexpr size_t kConnectionsMax = 1024;

  // UNAVAILABLE, with the address, where it cannot listen.
  static absl::StatusOr<std::unique_ptr<TcpSource>> Start(TcpSourceOptions options);
  ~TcpSource();  // stops

  const LaneEnd& lane_end() const;
  // Closes all connections and joins the thread. Idempotent.
  void Stop();

  int num_connections() const;  // of decode workers that have greeted
  int64_t num_refused() const;  // connections closed before they greeted rightly, since the start

 private:
  class Server;
  explicit TcpSource(std::unique_ptr<Server> server);
  std::unique_ptr<Server> server_;
};

}  // namespace tandem::kvtransfer

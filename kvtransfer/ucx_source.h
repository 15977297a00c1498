// The source's end of all UCX lanes: owns the memory of a KV pool and serves it to decode workers.
//
// One thread of its own touches every UCX object; it sleeps until a message comes. Decode reads the pool by itself over
// ucx_shm and asks this thread over ucx_am. The pool is zero at the start and stays at its place until the destructor.
// Tested by lane_conformance_test.cc, ucx_source_test.cc and lane_process_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvtransfer/epoch_check.h"
#include "kvtransfer/lane_end.h"

namespace tandem::kvtransfer {

struct UcxSourceOptions {
  uint64_t pool_bytes = 0;
  bool offers_shm = true;  // the pool then lies in a shared segment, and /dev/shm must have room for it
  bool offers_am = true;
  // For ucx_am: where it listens (empty: the first routable address of net_devices, port 0: a free one), and the host
  // by which decode workers reach it (empty: the one it listens on). UCX lets whoever can connect kill the process
  // (docs/adr/0007-lanes-over-ucx.md), so a listener is bound to one address unless a wildcard is asked for.
  std::string am_listen_host;
  int am_port = 0;
  std::string am_advertised_host;
  std::string net_devices = "all";  // as UCX names them: "eth0", "eth0,eth1"
  EpochCheck is_epoch_readable;     // called on the source's thread
};

class UcxSource final {
 public:
  // RESOURCE_EXHAUSTED where /dev/shm has no room for the pool, with both sizes.
  static absl::StatusOr<std::unique_ptr<UcxSource>> Start(UcxSourceOptions options);
  ~UcxSource();  // stops

  std::span<std::byte> pool() const;
  const std::vector<LaneEnd>& lane_ends() const;
  // Closes all connections and joins the thread; the pool stays. Idempotent.
  void Stop();

 private:
  class Engine;
  explicit UcxSource(std::unique_ptr<Engine> engine);
  std::unique_ptr<Engine> engine_;
};

}  // namespace tandem::kvtransfer

// What the decode engine wants done outside of itself. The shell carries it out on streams, links and lanes; tests and
// the simulator record it or carry it over fake ones. No call blocks, none calls back into the engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvtransfer/transfer_target.h"
#include "proto/worker.pb.h"

namespace tandem::decode {

class Outbox {
 public:
  virtual ~Outbox() = default;
  // On that stream and no other: a router that has come back on a newer one has not yet said what it missed, so what
  // was meant for the older one must not reach it there. Dropped where the stream is gone or replaced.
  virtual void ToRouter(uint64_t stream_id, proto::WorkerMessage message) = 0;
  virtual void ToPeer(kvtransfer::SendMessage message) = 0;
  virtual void Fetch(kvtransfer::StartFetch fetch) = 0;
  virtual void Cancel(kvtransfer::CancelFetches cancel) = 0;
  // The peer's lanes hang: they are to be closed and its link reset.
  virtual void Reset(kvtransfer::ResetPeer reset) = 0;
  // The whole set of prefill workers to be linked with, at each change.
  virtual void LinkWith(const std::vector<std::string>& bootstrap_addresses) = 0;
};

}  // namespace tandem::decode

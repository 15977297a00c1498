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
  virtual void ToRouter(uint64_t router_incarnation, proto::WorkerMessage message) = 0;
  virtual void ToPeer(kvtransfer::SendMessage message) = 0;
  virtual void Fetch(kvtransfer::StartFetch fetch) = 0;
  virtual void Cancel(kvtransfer::CancelFetches cancel) = 0;
  // The peer's lanes hang: they are to be closed and its link reset.
  virtual void Reset(kvtransfer::ResetPeer reset) = 0;
  // The whole set of prefill workers to be linked with, at each change.
  virtual void LinkWith(const std::vector<std::string>& bootstrap_addresses) = 0;
};

}  // namespace tandem::decode

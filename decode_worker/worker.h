// The decode worker as a process: the engine on its thread, with streams, links, lanes and the admin server around it.
//
// The shell decides nothing: it carries messages between gRPC, lanes and the engine's mailbox, and shows what the
// engine says of itself. Tested by //tests/workers.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "decode_worker/config.h"
#include "model/model_executor.h"
#include "worker_shell/served_model.h"

namespace tandem::decode {

class Worker final {
 public:
  // Loads the model and serves. The first thing that cannot be had, in one line: the checkpoint, memory, a port.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const DecodeConfig& config, const base::Clock& clock);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  int rpc_port() const;
  int admin_port() const;
  // Takes no more requests and waits until those that live have ended. DEADLINE_EXCEEDED where they have not in time.
  absl::Status Drain(absl::Duration timeout);

 private:
  class Core;
  explicit Worker(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace tandem::decode

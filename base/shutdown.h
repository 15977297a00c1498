// SIGTERM and SIGINT as an event that main waits for. Blocks both signals in every thread started later, so construct
// it first in main. A second signal while draining ends the process at once with exit code 1. Tested by
// shutdown_test.cc.
#pragma once

#include <functional>
#include <thread>

#include "absl/synchronization/notification.h"

namespace tandem::base {

class ShutdownSignal final {
 public:
  ShutdownSignal();
  ~ShutdownSignal();
  // Blocks until the first signal.
  void Wait();

 private:
  void Listen();
  absl::Notification received_;
  std::thread listener_;
};

}  // namespace tandem::base

// What the router adds to a request's way, seen from outside: a client and the workers in one process, on one clock.
//
// Before: from the client's last byte handed to the kernel to the prompt whole in the worker. After: from a token
// handed to gRPC to its event in the client. Both hold two loopback sockets and two other threads' wake-ups that a
// router cannot avoid, so they bound its own share from above. What the workers wait for their next step is in neither.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/bench/router_cost/step_workers.h"

namespace tandem::router_cost {

struct Added {
  absl::Duration before;
  std::vector<absl::Duration> after;  // of each token
};

class LatencyProbe final {
 public:
  struct Options {
    int router_port = 0;
    std::string model;
    std::string prompt;
    int num_tokens = 8;
  };
  // References outlive the probe.
  LatencyProbe(const Options& options, StepWorkers& workers, const base::Clock& clock);
  ~LatencyProbe();

  // One request, streamed, answered. UNAVAILABLE where it was not.
  absl::StatusOr<Added> Run(uint64_t seed);

 private:
  absl::Status Connect();
  absl::StatusOr<std::vector<absl::Duration>> ReadEvents();

  const Options options_;
  StepWorkers& workers_;
  const base::Clock& clock_;
  int socket_ = -1;
};

}  // namespace tandem::router_cost

// A prefill and a decode worker without a model, for measuring what the router itself takes.
//
// They speak the workers' protocol over real gRPC on loopback and generate as an engine does: in steps, each of which
// gives every sequence its next token, all of one router in one message (cut as workers cut them). The tokens are the
// prompt's own, so they are words of the router's vocabulary. Credits are not looked at: the
// clients of a benchmark read. Requests whose seed is watched have their times noted, for latency_probe.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"

namespace tandem::router_cost {

class StepWorkers final {
 public:
  struct Options {
    int prefill_port = 0;
    int decode_port = 0;
    absl::Duration step_interval;
  };
  // When a watched request's prompt was whole, and when each of its tokens was handed to gRPC.
  struct Times {
    absl::Duration received;
    std::vector<absl::Duration> sent;
  };

  // The clock outlives the workers.
  StepWorkers(const Options& options, const base::Clock& clock);
  ~StepWorkers();
  StepWorkers(const StepWorkers&) = delete;
  StepWorkers& operator=(const StepWorkers&) = delete;

  bool is_listening() const;
  void Watch(uint64_t seed);
  // Of a watched seed, which is watched no more; nothing where no request with it has come.
  std::optional<Times> TakeTimes(uint64_t seed);

 private:
  class Service;
  const std::unique_ptr<Service> service_;
};

}  // namespace tandem::router_cost

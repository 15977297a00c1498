// Lines on stderr that say how far a run is: one that is rewritten each second on a terminal, one each ten seconds
// elsewhere. Tested by progress_test.cc (the words) and in the end-to-end test.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"
#include "tools/bench_serving/load.h"

namespace tandem::bench_serving {

// "30 s: 120 of 1000 answered, 64 under way, 2 failed, 1810 tokens/s, about 220 s to go"
std::string ProgressLine(const Load::Counts& counts, size_t num_requests, absl::Duration elapsed);

class Progress final {
 public:
  // The load outlives it.
  Progress(boost::asio::io_context& io_context, const base::Clock& clock, const Load& load, size_t num_requests);
  ~Progress();
  void Start();
  void Stop();

 private:
  struct Timer;
  void WaitAndPrint();

  const base::Clock& clock_;
  const Load& load_;
  const size_t num_requests_;
  const bool is_terminal_;
  const std::unique_ptr<Timer> timer_;
};

}  // namespace tandem::bench_serving

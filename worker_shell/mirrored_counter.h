// Shows a plain counter of an engine as a Prometheus counter, which only takes increments.
#pragma once

#include <cstdint>

#include "prometheus/counter.h"

namespace tandem::worker_shell {

class MirroredCounter final {
 public:
  explicit MirroredCounter(prometheus::Counter& counter) : counter_(counter) {}
  // value never goes back.
  void Set(int64_t value) {
    counter_.Increment(static_cast<double>(value - last_));
    last_ = value;
  }

 private:
  prometheus::Counter& counter_;
  int64_t last_ = 0;
};

}  // namespace tandem::worker_shell

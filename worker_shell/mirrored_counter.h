// Shows a plain counter of an engine as a Prometheus counter, which only takes increments.
#pragma once

#include <cstdint>

#include "prometheus/counter.h"

namespace tandem::worker_shell {

class MirroredCounter final {
 public:
  // unit: what one of the value is in the counter's own terms.
  explicit MirroredCounter(prometheus::Counter& counter, double unit = 1) : counter_(counter), unit_(unit) {}
  // value never goes back.
  void Set(int64_t value) {
    counter_.Increment(static_cast<double>(value - last_) * unit_);
    last_ = value;
  }

 private:
  prometheus::Counter& counter_;
  const double unit_;
  int64_t last_ = 0;
};

}  // namespace tandem::worker_shell

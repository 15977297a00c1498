// Shows counts that an engine keeps by bucket as a Prometheus histogram, which only takes increments.
// Tested by mirrored_histogram_test.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "prometheus/histogram.h"

namespace tandem::worker_shell {

class MirroredHistogram final {
 public:
  // num_buckets: of the histogram's bounds, without the last, infinite one.
  MirroredHistogram(prometheus::Histogram& histogram, size_t num_buckets)
      : histogram_(histogram), last_(num_buckets), increments_(num_buckets + 1) {}
  // counts[i]: values within bound i and above the one before; at least num_buckets. sum: of all values. Neither goes
  // back.
  void Set(absl::Span<const int64_t> counts, double sum) {
    bool has_grown = false;
    for (size_t i = 0; i < last_.size(); ++i) {
      increments_[i] = static_cast<double>(counts[i] - last_[i]);
      has_grown = has_grown || counts[i] > last_[i];
      last_[i] = counts[i];
    }
    if (has_grown) histogram_.ObserveMultiple(increments_, sum - last_sum_);
    last_sum_ = sum;
  }

 private:
  prometheus::Histogram& histogram_;
  std::vector<int64_t> last_;
  std::vector<double> increments_;
  double last_sum_ = 0;
};

}  // namespace tandem::worker_shell

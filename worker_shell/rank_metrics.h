// What the ranks of a worker send each other, as metrics: a series for each rank and collective. docs/operations.md
// lists them. Tested by rank_metrics_test.cc.
#pragma once

#include <vector>

#include "base/metrics.h"
#include "model/rank_group.h"
#include "worker_shell/mirrored_counter.h"

namespace tandem::worker_shell {

class RankMetrics final {
 public:
  RankMetrics(base::Metrics& metrics, int num_ranks);
  // The group has as many ranks.
  void Update(const model::RankGroup& group);

 private:
  struct Series {
    MirroredCounter calls;
    MirroredCounter bytes;
    MirroredCounter microseconds;
  };
  std::vector<Series> series_;                // [rank][collective]
  std::vector<MirroredCounter> expert_rows_;  // [rank]
};

}  // namespace tandem::worker_shell

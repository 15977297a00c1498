#include "worker_shell/rank_metrics.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "model/communicator/communicator.h"

namespace tandem::worker_shell {

RankMetrics::RankMetrics(base::Metrics& m, int num_ranks) {
  for (int rank = 0; rank < num_ranks; ++rank) {
    expert_rows_.emplace_back(m.AddCounter("tandem_expert_rows_total",
                                           "Rows that a rank's experts have computed, where experts are spread over "
                                           "ranks; a row counts at each expert.",
                                           {{"rank", absl::StrCat(rank)}}));
    for (const absl::string_view collective : model::kCollectiveNames) {
      const base::MetricLabels labels = {{"rank", absl::StrCat(rank)}, {"collective", std::string(collective)}};
      series_.push_back(
          {.calls = MirroredCounter(m.AddCounter("tandem_collective_calls_total",
                                                 "Exchanges between the worker's ranks, by rank and kind.", labels)),
           .bytes = MirroredCounter(
               m.AddCounter("tandem_collective_sent_bytes_total", "Bytes that a rank sent to others in them.", labels)),
           .microseconds =
               MirroredCounter(m.AddCounter("tandem_collective_seconds_total",
                                            "Time of a rank in them, waiting for slower ranks included.", labels),
                               /*unit=*/1e-6)});
    }
  }
}

void RankMetrics::Update(const model::RankGroup& group) {
  TANDEM_CHECK(group.size() * model::kCollectiveNames.size() == series_.size(), "a series for each rank");
  for (int rank = 0; rank < group.size(); ++rank) expert_rows_[rank].Set(group.num_expert_pairs(rank));
  for (size_t i = 0; i < series_.size(); ++i) {
    const auto rank = static_cast<int>(i / model::kCollectiveNames.size());
    const auto collective = static_cast<model::Collective>(i % model::kCollectiveNames.size());
    const model::CollectiveCounters counters = group.communicator(rank).counters(collective);
    series_[i].calls.Set(counters.num_calls);
    series_[i].bytes.Set(counters.bytes_sent);
    series_[i].microseconds.Set(absl::ToInt64Microseconds(counters.time));
  }
}

}  // namespace tandem::worker_shell

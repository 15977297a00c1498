// GET /debug/state: what the dashboard shows, as JSON; docs/dashboard.md has its members.
//
// Counters are since the start, so that whoever polls makes rates of his own interval. Bounded whatever the cluster's
// size: workers, pairs, streams and requests are cut, those that need a look first, and the number of all is told. No
// text of prompts or answers is in it. Tested by dashboard_state_test.cc.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "router/admission.h"
#include "router/cluster_view.h"
#include "router/metrics.h"
#include "router/status_board.h"
#include "router/timeline/timeline_store.h"

namespace tandem::router {

struct DashboardSources {  // all outlive the call
  std::string instance;
  absl::Duration now;  // of the clock of the board and of the timelines
  absl::Time wall_time;
  absl::Status ready;  // of all shards
  bool is_draining = false;
  const ClusterView* view = nullptr;  // of the shard that is asked
  Admission::Limits limits;           // of each shard
  const RouterMetrics* metrics = nullptr;
  const StatusBoard* board = nullptr;
  const TimelineStore* timelines = nullptr;
};

inline constexpr size_t kWorkersInStateMax = 600;
inline constexpr size_t kPairsInStateMax = 50;  // not usable ones first
inline constexpr size_t kStreamsInStateMax = 50;
inline constexpr size_t kSlowInStateMax = 20;
inline constexpr size_t kFailedInStateMax = 10;

std::string DashboardState(const DashboardSources& sources);

}  // namespace tandem::router

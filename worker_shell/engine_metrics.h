// The metrics that the engines of both kinds of workers have. docs/operations.md lists them.
#pragma once

#include "absl/time/time.h"
#include "base/metrics.h"
#include "kvcache/page_allocator.h"
#include "proto/worker.pb.h"
#include "worker_shell/mirrored_counter.h"

namespace tandem::worker_shell {

class EngineMetrics final {
 public:
  explicit EngineMetrics(base::Metrics& metrics);

  // After every engine step, on the engine's thread. num_steps, num_received: the engine's own counters.
  struct Sample {
    proto::Load load;
    const kvcache::PageAllocator& pages;
    size_t mailbox_messages;
    absl::Duration step_time;
    int64_t num_steps;
    int64_t num_received;
  };
  void Update(const Sample& sample);
  // Calls that did not show the cluster's token.
  void UpdateStrangers(int64_t num_refused) { strangers_refused_.Set(num_refused); }

 private:
  prometheus::Gauge& running_requests_;
  prometheus::Gauge& queued_requests_;
  prometheus::Gauge& queued_tokens_;
  prometheus::Gauge& kv_pages_used_;
  prometheus::Gauge& kv_pages_total_;
  prometheus::Gauge& mailbox_messages_;
  prometheus::Histogram& step_seconds_;
  MirroredCounter steps_;
  MirroredCounter requests_received_;
  MirroredCounter strangers_refused_;
  int64_t last_steps_ = 0;
};

}  // namespace tandem::worker_shell

// Every metric of the prefill worker, with its help text. docs/operations.md lists them.
#pragma once

#include "absl/time/time.h"
#include "base/metrics.h"
#include "prefill_worker/engine.h"
#include "worker_shell/mirrored_counter.h"

namespace tandem::prefill {

class PrefillMetrics final {
 public:
  explicit PrefillMetrics(base::Metrics& metrics);
  // After every engine step, on the engine's thread.
  void Update(const Engine& engine, absl::Duration step_time, size_t mailbox_messages);

 private:
  prometheus::Gauge& running_requests_;
  prometheus::Gauge& queued_requests_;
  prometheus::Gauge& queued_tokens_;
  prometheus::Gauge& kv_pages_used_;
  prometheus::Gauge& kv_pages_total_;
  prometheus::Gauge& mailbox_messages_;
  prometheus::Gauge& transfer_open_epochs_;
  prometheus::Gauge& transfer_pinned_pages_;
  prometheus::Gauge& transfer_lapsing_leases_;
  prometheus::Gauge& transfer_undone_bytes_;
  prometheus::Histogram& step_seconds_;
  worker_shell::MirroredCounter requests_received_;
  worker_shell::MirroredCounter requests_done_;
  worker_shell::MirroredCounter requests_ended_;
  worker_shell::MirroredCounter requests_refused_;
  worker_shell::MirroredCounter prompt_tokens_;
  worker_shell::MirroredCounter first_tokens_;
  worker_shell::MirroredCounter steps_;
  worker_shell::MirroredCounter announced_bytes_;
  worker_shell::MirroredCounter leases_lapsed_;
  worker_shell::MirroredCounter stale_messages_;
  worker_shell::MirroredCounter repeats_;
  int64_t last_steps_ = 0;
};

}  // namespace tandem::prefill

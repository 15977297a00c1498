// Every metric of the prefill worker, with its help text. docs/operations.md lists them.
#pragma once

#include "absl/time/time.h"
#include "base/metrics.h"
#include "kvtransfer/tcp_source.h"
#include "prefill_worker/engine.h"
#include "worker_shell/engine_metrics.h"
#include "worker_shell/mirrored_counter.h"
#include "worker_shell/prefix_cache_metrics.h"
#include "worker_shell/rank_metrics.h"

namespace tandem::prefill {

class PrefillMetrics final {
 public:
  PrefillMetrics(base::Metrics& metrics, int num_ranks);
  // After every engine step, on the engine's thread.
  void Update(const Engine& engine, absl::Duration step_time, size_t mailbox_messages);
  // Of the tcp lanes' source, where there is one.
  void UpdateTcp(const kvtransfer::TcpSource& source);
  void UpdateStrangers(int64_t num_refused) { engine_.UpdateStrangers(num_refused); }
  // Of several ranks.
  void UpdateRanks(const model::RankGroup& ranks) { ranks_.Update(ranks); }

 private:
  worker_shell::EngineMetrics engine_;
  prometheus::Gauge& transfer_open_epochs_;
  prometheus::Gauge& transfer_oldest_epoch_;
  prometheus::Gauge& transfer_pinned_pages_;
  prometheus::Gauge& transfer_lapsing_leases_;
  prometheus::Gauge& transfer_undone_bytes_;
  worker_shell::MirroredCounter requests_done_;
  worker_shell::MirroredCounter requests_ended_;
  worker_shell::MirroredCounter requests_refused_;
  worker_shell::MirroredCounter prompt_tokens_;
  worker_shell::MirroredCounter first_tokens_;
  worker_shell::MirroredCounter announced_bytes_;
  worker_shell::MirroredCounter leases_lapsed_;
  worker_shell::MirroredCounter stale_messages_;
  worker_shell::MirroredCounter unknown_epochs_;
  worker_shell::MirroredCounter repeats_;
  worker_shell::PrefixCacheMetrics prefix_cache_;
  worker_shell::MirroredCounter cached_prompt_tokens_;
  worker_shell::MirroredCounter prefix_distrusts_;
  prometheus::Gauge& tcp_connections_;
  worker_shell::MirroredCounter tcp_refused_;
  worker_shell::RankMetrics ranks_;
};

}  // namespace tandem::prefill

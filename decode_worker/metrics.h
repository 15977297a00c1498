// Every metric of the decode worker, with its help text. docs/operations.md lists them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/metrics.h"
#include "decode_worker/engine.h"
#include "decode_worker/hisparse/hisparse_metrics.h"
#include "kvtransfer/transfer_target.h"
#include "worker_shell/engine_metrics.h"
#include "worker_shell/mirrored_counter.h"
#include "worker_shell/mirrored_histogram.h"
#include "worker_shell/prefix_cache_metrics.h"
#include "worker_shell/rank_metrics.h"

namespace tandem::decode {

class DecodeMetrics final {
 public:
  // num_drafts_max: places of a window that have counters of their own.
  DecodeMetrics(base::Metrics& metrics, int num_drafts_max, int num_ranks);
  // After every engine step, on the engine's thread.
  // live_bytes: that wait for routers to read.
  void Update(const Engine& engine, absl::Duration step_time, size_t mailbox_messages, size_t live_bytes);
  // On the engine's thread too.
  void PeerUp(const std::string& peer, const std::vector<kvtransfer::PeerLane>& lanes, size_t num_refused);
  void PeerDown(const std::string& peer);
  void UpdateStrangers(int64_t num_refused) { engine_.UpdateStrangers(num_refused); }
  // Of several ranks.
  void UpdateRanks(const model::RankGroup& ranks) { ranks_.Update(ranks); }

 private:
  base::Metrics& metrics_;
  worker_shell::RankMetrics ranks_;
  std::map<std::string, std::vector<prometheus::Gauge*>> lane_rates_;  // of peers that are up
  worker_shell::EngineMetrics engine_;
  HiSparseMetrics hisparse_;
  prometheus::Gauge& transfer_open_epochs_;
  prometheus::Gauge& transfer_oldest_epoch_;
  prometheus::Gauge& transfer_held_pages_;
  prometheus::Gauge& transfer_outstanding_fetches_;
  prometheus::Gauge& transfer_outstanding_bytes_;
  prometheus::Gauge& transfer_unfetched_bytes_;
  prometheus::Gauge& max_running_;
  prometheus::Gauge& without_credit_;
  prometheus::Gauge& parked_;
  prometheus::Gauge& unconfirmed_ends_;
  prometheus::Gauge& live_bytes_;
  worker_shell::MirroredCounter requests_finished_;
  worker_shell::MirroredCounter requests_cancelled_;
  worker_shell::MirroredCounter requests_failed_;
  worker_shell::MirroredCounter requests_refused_;
  worker_shell::MirroredCounter requests_dropped_;
  worker_shell::MirroredCounter tokens_generated_;
  worker_shell::MirroredCounter tokens_replayed_;
  worker_shell::MirroredCounter replay_mismatches_;
  worker_shell::MirroredCounter retractions_;
  worker_shell::MirroredCounter credit_retractions_;
  worker_shell::MirroredCounter kept_retractions_;
  worker_shell::MirroredCounter kept_resumes_;
  prometheus::Gauge& retraction_pages_;
  prometheus::Gauge& retraction_pages_used_;
  worker_shell::MirroredCounter retraction_bytes_out_, retraction_bytes_in_;
  worker_shell::MirroredCounter reattached_routers_;
  worker_shell::MirroredCounter tokens_said_again_;
  worker_shell::MirroredCounter requests_not_known_;
  worker_shell::MirroredCounter stale_retries_;
  worker_shell::MirroredCounter data_loss_retries_;
  worker_shell::MirroredCounter lanes_quarantined_;
  worker_shell::MirroredCounter rows_;
  worker_shell::MirroredCounter spec_windows_;
  std::vector<worker_shell::MirroredCounter> spec_drafted_, spec_accepted_;  // by place in the window
  worker_shell::MirroredHistogram spec_window_tokens_, spec_answer_length_;
  prometheus::Gauge& spec_accept_length_;
  prometheus::Gauge& spec_draft_length_;
  worker_shell::PrefixCacheMetrics prefix_cache_;
  worker_shell::MirroredCounter held_prompt_tokens_;
  worker_shell::MirroredCounter generated_pages_kept_;
  worker_shell::MirroredCounter fetched_bytes_;
  worker_shell::MirroredCounter wrong_sums_;
  worker_shell::MirroredCounter refetched_pages_;
  worker_shell::MirroredCounter fetch_errors_;
  worker_shell::MirroredCounter stale_messages_;
  worker_shell::MirroredCounter unknown_epochs_;
  worker_shell::MirroredCounter repeats_;
  prometheus::Counter& lanes_refused_;
};

}  // namespace tandem::decode

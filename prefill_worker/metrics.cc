#include "prefill_worker/metrics.h"

namespace tandem::prefill {

PrefillMetrics::PrefillMetrics(base::Metrics& m, int num_ranks)
    : engine_(m),
      transfer_open_epochs_(m.AddGauge("tandem_kv_transfer_open_epochs", "Transfers that decode has not confirmed.")),
      transfer_oldest_epoch_(m.AddGauge("tandem_kv_transfer_oldest_epoch_seconds",
                                        "Age of the oldest open transfer; 0 where none is open.")),
      transfer_pinned_pages_(m.AddGauge("tandem_kv_transfer_pinned_pages", "Pages kept for decode workers.")),
      transfer_lapsing_leases_(m.AddGauge("tandem_kv_transfer_lapsing_leases",
                                          "Decode workers whose stream is gone while pages are kept for them.")),
      transfer_undone_bytes_(m.AddGauge("tandem_kv_transfer_announced_undone_bytes",
                                        "Bytes announced to decode workers that have not said Done.")),
      requests_done_(
          m.AddCounter("tandem_requests_ended_total", "Requests that ended, by outcome.", {{"outcome", "finished"}})),
      requests_ended_(
          m.AddCounter("tandem_requests_ended_total", "Requests that ended, by outcome.", {{"outcome", "aborted"}})),
      requests_refused_(m.AddCounter("tandem_requests_refused_total",
                                     "Requests that were refused on arrival; they also count as aborted.")),
      prompt_tokens_(m.AddCounter("tandem_prompt_tokens_total", "Prompt tokens computed.")),
      first_tokens_(m.AddCounter("tandem_first_tokens_total", "First tokens sampled.")),
      announced_bytes_(m.AddCounter("tandem_kv_transfer_announced_bytes_total", "KV bytes announced to decode.")),
      leases_lapsed_(m.AddCounter("tandem_kv_transfer_leases_lapsed_total",
                                  "Decode workers that were gone for longer than the lease.")),
      stale_messages_(m.AddCounter("tandem_kv_transfer_stale_messages_total",
                                   "Control messages of another incarnation or of another request.")),
      unknown_epochs_(
          m.AddCounter("tandem_kv_transfer_unknown_epochs_total",
                       "Control messages of transfers that are not open here; 0 while no message is lost.")),
      repeats_(m.AddCounter("tandem_kv_transfer_repeats_total", "Control messages answered again.")),
      prefix_cache_(m),
      cached_prompt_tokens_(m.AddCounter("tandem_cached_prompt_tokens_total",
                                         "Prompt tokens that were in the prefix cache and not computed again.")),
      prefix_distrusts_(m.AddCounter("tandem_prefix_cache_distrusts_total",
                                     "Prefixes dropped because sums of their pages disagreed at decode.")),
      tcp_connections_(
          m.AddGauge("tandem_kv_transfer_tcp_connections", "Connections of decode workers to the tcp lanes' port.")),
      tcp_refused_(
          m.AddCounter("tandem_kv_transfer_tcp_refused_total",
                       "Connections to the tcp lanes' port that were not a decode worker's: port scans, health "
                       "probes, decode workers that mean an earlier process.")),
      ranks_(m, num_ranks) {}

void PrefillMetrics::Update(const Engine& engine, absl::Duration step_time, size_t mailbox_messages) {
  const EngineCounters& counters = engine.counters();
  engine_.Update({.load = engine.load(),
                  .pages = engine.pages(),
                  .mailbox_messages = mailbox_messages,
                  .step_time = step_time,
                  .num_steps = counters.steps,
                  .num_received = counters.requests_received});
  const kvtransfer::SourceLedger ledger = engine.transfer().ledger();
  transfer_open_epochs_.Set(static_cast<double>(ledger.open_epochs));
  transfer_oldest_epoch_.Set(absl::ToDoubleSeconds(engine.transfer().OldestEpochAge()));
  transfer_pinned_pages_.Set(static_cast<double>(ledger.pinned_pages));
  transfer_lapsing_leases_.Set(static_cast<double>(ledger.lapsing_leases));
  transfer_undone_bytes_.Set(static_cast<double>(ledger.announced_undone_bytes));
  requests_done_.Set(counters.requests_done);
  requests_ended_.Set(counters.requests_ended);
  requests_refused_.Set(counters.requests_refused);
  prompt_tokens_.Set(counters.prompt_tokens);
  first_tokens_.Set(counters.first_tokens);
  prefix_cache_.Update(engine.prefix_cache(), engine.pages(), counters.prefix_hits, counters.prefix_flushes);
  cached_prompt_tokens_.Set(counters.cached_prompt_tokens);
  prefix_distrusts_.Set(counters.prefix_distrusts);
  const kvtransfer::SourceCounters& transfer = engine.transfer().counters();
  announced_bytes_.Set(transfer.announced_bytes);
  leases_lapsed_.Set(transfer.leases_lapsed);
  stale_messages_.Set(transfer.stale_messages);
  unknown_epochs_.Set(transfer.unknown_epochs);
  repeats_.Set(transfer.repeats_answered);
}

void PrefillMetrics::UpdateTcp(const kvtransfer::TcpSource& source) {
  tcp_connections_.Set(source.num_connections());
  tcp_refused_.Set(source.num_refused());
}

}  // namespace tandem::prefill

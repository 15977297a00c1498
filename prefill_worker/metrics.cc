#include "prefill_worker/metrics.h"

namespace tandem::prefill {

PrefillMetrics::PrefillMetrics(base::Metrics& m)
    : running_requests_(m.AddGauge("tandem_num_running_reqs", "Prompts that are being computed.")),
      queued_requests_(m.AddGauge("tandem_num_queue_reqs", "Requests that wait for KV pages.")),
      queued_tokens_(m.AddGauge("tandem_num_queue_tokens", "Prompt tokens that are not computed yet.")),
      kv_pages_used_(m.AddGauge("tandem_kv_pages_used", "KV pages of 64 tokens that somebody holds.")),
      kv_pages_total_(m.AddGauge("tandem_kv_pages", "KV pages of the pool.")),
      mailbox_messages_(m.AddGauge("tandem_engine_mailbox_messages", "Messages that wait for the engine's thread.")),
      transfer_open_epochs_(m.AddGauge("tandem_kv_transfer_open_epochs", "Transfers that decode has not confirmed.")),
      transfer_pinned_pages_(m.AddGauge("tandem_kv_transfer_pinned_pages", "Pages kept for decode workers.")),
      transfer_lapsing_leases_(m.AddGauge("tandem_kv_transfer_lapsing_leases",
                                          "Decode workers whose stream is gone while pages are kept for them.")),
      transfer_undone_bytes_(m.AddGauge("tandem_kv_transfer_announced_undone_bytes",
                                        "Bytes announced to decode workers that have not said Done.")),
      step_seconds_(m.AddHistogram("tandem_engine_step_seconds", "Time of engine steps with a forward pass.",
                                   base::LatencyBuckets())),
      requests_received_(m.AddCounter("tandem_requests_received_total", "Requests that came from decode workers.")),
      requests_done_(
          m.AddCounter("tandem_requests_ended_total", "Requests that ended, by outcome.", {{"outcome", "finished"}})),
      requests_ended_(
          m.AddCounter("tandem_requests_ended_total", "Requests that ended, by outcome.", {{"outcome", "aborted"}})),
      requests_refused_(m.AddCounter("tandem_requests_refused_total",
                                     "Requests that were refused on arrival; they also count as aborted.")),
      prompt_tokens_(m.AddCounter("tandem_prompt_tokens_total", "Prompt tokens computed.")),
      first_tokens_(m.AddCounter("tandem_first_tokens_total", "First tokens sampled.")),
      steps_(m.AddCounter("tandem_engine_steps_total", "Forward passes.")),
      announced_bytes_(m.AddCounter("tandem_kv_transfer_announced_bytes_total", "KV bytes announced to decode.")),
      leases_lapsed_(m.AddCounter("tandem_kv_transfer_leases_lapsed_total",
                                  "Decode workers that were gone for longer than the lease.")),
      stale_messages_(m.AddCounter("tandem_kv_transfer_stale_messages_total",
                                   "Control messages of another incarnation or of another request.")),
      repeats_(m.AddCounter("tandem_kv_transfer_repeats_total", "Control messages answered again.")) {}

void PrefillMetrics::Update(const Engine& engine, absl::Duration step_time, size_t mailbox_messages) {
  const proto::Load load = engine.load();
  running_requests_.Set(load.running_sequences());
  queued_requests_.Set(load.waiting_requests());
  queued_tokens_.Set(static_cast<double>(load.waiting_tokens()));
  kv_pages_used_.Set(static_cast<double>(engine.pages().num_used()));
  kv_pages_total_.Set(static_cast<double>(engine.pages().num_pages()));
  mailbox_messages_.Set(static_cast<double>(mailbox_messages));
  const kvtransfer::SourceLedger ledger = engine.transfer().ledger();
  transfer_open_epochs_.Set(static_cast<double>(ledger.open_epochs));
  transfer_pinned_pages_.Set(static_cast<double>(ledger.pinned_pages));
  transfer_lapsing_leases_.Set(static_cast<double>(ledger.lapsing_leases));
  transfer_undone_bytes_.Set(static_cast<double>(ledger.announced_undone_bytes));
  const EngineCounters& counters = engine.counters();
  if (counters.steps > last_steps_) step_seconds_.Observe(absl::ToDoubleSeconds(step_time));
  last_steps_ = counters.steps;
  requests_received_.Set(counters.requests_received);
  requests_done_.Set(counters.requests_done);
  requests_ended_.Set(counters.requests_ended);
  requests_refused_.Set(counters.requests_refused);
  prompt_tokens_.Set(counters.prompt_tokens);
  first_tokens_.Set(counters.first_tokens);
  steps_.Set(counters.steps);
  const kvtransfer::SourceCounters& transfer = engine.transfer().counters();
  announced_bytes_.Set(transfer.announced_bytes);
  leases_lapsed_.Set(transfer.leases_lapsed);
  stale_messages_.Set(transfer.stale_messages);
  repeats_.Set(transfer.repeats_answered);
}

}  // namespace tandem::prefill

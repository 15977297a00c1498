#include "decode_worker/metrics.h"

#include <algorithm>
#include <string>

namespace tandem::decode {
namespace {

// Tokens of a window, or an answer's mean of them: from 1 to one more than the drafts, `step` apart.
std::vector<double> LengthBounds(int num_drafts_max, double step) {
  std::vector<double> bounds;
  for (int i = 0; 1 + i * step <= 1 + std::max(1, num_drafts_max); ++i) bounds.push_back(1 + i * step);
  return bounds;
}

}  // namespace

DecodeMetrics::DecodeMetrics(base::Metrics& m, int num_drafts_max, int num_ranks)
    : metrics_(m),
      ranks_(m, num_ranks),
      engine_(m),
      hisparse_(m),
      transfer_open_epochs_(m.AddGauge("tandem_kv_transfer_open_epochs", "Transfers that prefill has not confirmed.")),
      transfer_oldest_epoch_(m.AddGauge("tandem_kv_transfer_oldest_epoch_seconds",
                                        "Age of the oldest open transfer; 0 where none is open.")),
      transfer_held_pages_(m.AddGauge("tandem_kv_transfer_held_pages", "Pages of transfers under way.")),
      transfer_outstanding_fetches_(m.AddGauge("tandem_kv_transfer_outstanding_fetches", "Fetches under way.")),
      transfer_outstanding_bytes_(m.AddGauge("tandem_kv_transfer_outstanding_bytes", "Bytes of fetches under way.")),
      transfer_unfetched_bytes_(m.AddGauge("tandem_kv_transfer_announced_unfetched_bytes",
                                           "Bytes that prefill has announced and that have not arrived.")),
      max_running_(m.AddGauge("tandem_max_running_reqs",
                              "Choices that may hold pages at a time: process.max_running_requests, or what memory "
                              "gives.")),
      without_credit_(m.AddGauge("tandem_num_no_credit_reqs",
                                 "Running requests that sat out the last step: their reader has no room.")),
      parked_(m.AddGauge("tandem_num_parked_reqs",
                         "Requests that gave their pages back and wait for their reader to have room.")),
      unconfirmed_ends_(m.AddGauge("tandem_unconfirmed_ends",
                                   "Ended requests that are kept until their router has confirmed the end.")),
      live_bytes_(m.AddGauge("tandem_live_queued_bytes", "Bytes of tokens and ends that wait for routers to read.")),
      requests_finished_(
          m.AddCounter("tandem_requests_ended_total", "Requests that ended, by outcome.", {{"outcome", "finished"}})),
      requests_cancelled_(
          m.AddCounter("tandem_requests_ended_total", "Requests that ended, by outcome.", {{"outcome", "cancelled"}})),
      requests_failed_(
          m.AddCounter("tandem_requests_ended_total", "Requests that ended, by outcome.", {{"outcome", "failed"}})),
      requests_refused_(m.AddCounter("tandem_requests_refused_total",
                                     "Requests that were refused on arrival; they also count as failed.")),
      requests_dropped_(
          m.AddCounter("tandem_requests_ended_total", "Requests that ended, by outcome.", {{"outcome", "dropped"}})),
      tokens_generated_(m.AddCounter("tandem_generation_tokens_total", "Tokens generated, first tokens included.")),
      tokens_replayed_(m.AddCounter("tandem_replayed_tokens_total",
                                    "Known tokens whose KV was computed again after a retraction or a failover.")),
      replay_mismatches_(
          m.AddCounter("tandem_replay_mismatches_total",
                       "Replayed tokens that this worker would have drawn differently; 0 in exact mode.")),
      retractions_(m.AddCounter("tandem_retracted_reqs_total", "Sequences that gave their pages back, by cause.",
                                {{"cause", "page_famine"}})),
      credit_retractions_(m.AddCounter("tandem_retracted_reqs_total", "Sequences that gave their pages back, by cause.",
                                       {{"cause", "no_credit"}})),
      kept_retractions_(m.AddCounter("tandem_retracted_to_host_reqs_total",
                                     "Of them those whose KV is kept on the host, from where they go on.")),
      kept_resumes_(m.AddCounter("tandem_resumed_from_host_reqs_total",
                                 "Sequences that went on from KV that was kept on the host.")),
      retraction_pages_(m.AddGauge("tandem_retraction_host_pages",
                                   "Pages of 64 tokens that the host has room for, of retracted sequences.")),
      retraction_pages_used_(m.AddGauge("tandem_retraction_host_pages_used", "Of them those that are kept.")),
      retraction_bytes_out_(m.AddCounter("tandem_retraction_host_bytes_total",
                                         "KV bytes copied to the host and back for retracted sequences, by direction.",
                                         {{"direction", "out"}})),
      retraction_bytes_in_(m.AddCounter("tandem_retraction_host_bytes_total",
                                        "KV bytes copied to the host and back for retracted sequences, by direction.",
                                        {{"direction", "back"}})),
      reattached_routers_(m.AddCounter("tandem_reattached_routers_total", "Routers that came back on a new stream.")),
      tokens_said_again_(
          m.AddCounter("tandem_tokens_said_again_total", "Tokens sent once more to routers that came back.")),
      requests_not_known_(m.AddCounter("tandem_unknown_reqs_total",
                                       "Requests that a router that came back named and that are not known here.")),
      stale_retries_(m.AddCounter("tandem_kv_transfer_retries_total", "Transfers tried once more, by cause.",
                                  {{"cause", "aborted"}})),
      data_loss_retries_(m.AddCounter("tandem_kv_transfer_retries_total", "Transfers tried once more, by cause.",
                                      {{"cause", "data_loss"}})),
      lanes_quarantined_(
          m.AddCounter("tandem_kv_transfer_quarantines_total", "Lanes taken out of use for wrong sums.")),
      rows_(m.AddCounter("tandem_engine_rows_total", "Rows of forward passes.")),
      spec_windows_(m.AddCounter("tandem_spec_windows_total",
                                 "Steps of sequences that might draft; each brings a token, and its accepted drafts.")),
      spec_window_tokens_(m.AddHistogram("tandem_spec_window_tokens",
                                         "Tokens that each such step brought: one, and its accepted drafts.",
                                         LengthBounds(num_drafts_max, 1)),
                          LengthBounds(num_drafts_max, 1).size()),
      spec_answer_length_(m.AddHistogram("tandem_spec_answer_accept_length",
                                         "Tokens that such steps brought in the mean of each choice that is over.",
                                         LengthBounds(num_drafts_max, 0.5)),
                          LengthBounds(num_drafts_max, 0.5).size()),
      spec_accept_length_(m.AddGauge("tandem_spec_accept_length",
                                     "Tokens that such a step brought in the mean since the start; 0 without drafts.")),
      spec_draft_length_(m.AddGauge("tandem_spec_draft_length", "Drafts of each window that were last thought best.")),
      prefix_cache_(m),
      held_prompt_tokens_(m.AddCounter("tandem_held_prompt_tokens_total",
                                       "Prompt tokens whose KV was here already and not fetched again.")),
      generated_pages_kept_(m.AddCounter("tandem_prefix_cache_generated_pages_total",
                                         "KV pages of generated tokens that the prefix cache has taken in.")),
      fetched_bytes_(m.AddCounter("tandem_kv_transfer_fetched_bytes_total", "KV bytes fetched from prefill workers.")),
      wrong_sums_(m.AddCounter("tandem_kv_transfer_wrong_sums_total", "Pages whose sum did not agree on arrival.")),
      refetched_pages_(m.AddCounter("tandem_kv_transfer_refetched_pages_total", "Pages fetched a second time.")),
      fetch_errors_(m.AddCounter("tandem_kv_transfer_fetch_errors_total", "Fetches that a lane failed.")),
      stale_messages_(m.AddCounter("tandem_kv_transfer_stale_messages_total",
                                   "Control messages of another incarnation or of another request.")),
      unknown_epochs_(
          m.AddCounter("tandem_kv_transfer_unknown_epochs_total",
                       "Control messages of transfers that are not open here; 0 while no message is lost.")),
      repeats_(m.AddCounter("tandem_kv_transfer_repeats_total", "Control messages said again after silence.")),
      lanes_refused_(m.AddCounter("tandem_kv_transfer_lanes_refused_total",
                                  "Lanes that a prefill worker offered and that failed or were far too slow when they "
                                  "were opened.")) {
  // The first place is there without drafts, too, so that every series has a name to be found by.
  for (int place = 0; place < std::max(1, num_drafts_max); ++place) {
    const base::MetricLabels labels = {{"place", std::to_string(place + 1)}};
    spec_drafted_.emplace_back(m.AddCounter("tandem_spec_drafted_tokens_total",
                                            "Drafts that were verified, by place in their window.", labels));
    spec_accepted_.emplace_back(
        m.AddCounter("tandem_spec_accepted_tokens_total", "Drafts that came true, by place in their window.", labels));
  }
}

void DecodeMetrics::Update(const Engine& engine, absl::Duration step_time, size_t mailbox_messages, size_t live_bytes) {
  const EngineCounters& counters = engine.counters();
  engine_.Update({.load = engine.load(),
                  .pages = engine.pages(),
                  .mailbox_messages = mailbox_messages,
                  .step_time = step_time,
                  .num_steps = counters.steps,
                  .num_received = counters.requests_received});
  hisparse_.Update(engine.device_buffer_counters(), engine.device_pages(), counters.swap_outs);
  const kvtransfer::TargetLedger ledger = engine.transfer().ledger();
  transfer_open_epochs_.Set(static_cast<double>(ledger.open_epochs));
  transfer_oldest_epoch_.Set(absl::ToDoubleSeconds(engine.transfer().OldestEpochAge()));
  transfer_held_pages_.Set(static_cast<double>(ledger.held_pages));
  transfer_outstanding_fetches_.Set(static_cast<double>(ledger.outstanding_fetches));
  transfer_outstanding_bytes_.Set(static_cast<double>(ledger.outstanding_bytes));
  transfer_unfetched_bytes_.Set(static_cast<double>(ledger.announced_unfetched_bytes));
  requests_finished_.Set(counters.requests_finished);
  requests_cancelled_.Set(counters.requests_cancelled);
  requests_failed_.Set(counters.requests_failed);
  requests_refused_.Set(counters.requests_refused);
  requests_dropped_.Set(counters.requests_dropped);
  prefix_cache_.Update(engine.prefix_cache(), engine.pages(), counters.prefix_hits, counters.prefix_flushes);
  held_prompt_tokens_.Set(counters.held_prompt_tokens);
  generated_pages_kept_.Set(counters.generated_pages_kept);
  tokens_generated_.Set(counters.tokens_generated);
  tokens_replayed_.Set(counters.tokens_replayed);
  replay_mismatches_.Set(counters.replay_mismatches);
  retractions_.Set(counters.retractions);
  credit_retractions_.Set(counters.credit_retractions);
  kept_retractions_.Set(counters.kept_retractions);
  kept_resumes_.Set(counters.kept_resumes);
  const RetractedPages& retracted = engine.retracted_pages();
  retraction_pages_.Set(static_cast<double>(retracted.pages().num_pages()));
  retraction_pages_used_.Set(static_cast<double>(retracted.pages().num_used()));
  retraction_bytes_out_.Set(retracted.bytes_kept());
  retraction_bytes_in_.Set(retracted.bytes_restored());
  reattached_routers_.Set(counters.reattached_routers);
  tokens_said_again_.Set(counters.tokens_said_again);
  requests_not_known_.Set(counters.requests_not_known);
  max_running_.Set(engine.num_sequences_max());
  without_credit_.Set(engine.num_without_credit());
  parked_.Set(engine.num_parked());
  unconfirmed_ends_.Set(static_cast<double>(engine.num_unconfirmed_ends()));
  live_bytes_.Set(static_cast<double>(live_bytes));
  stale_retries_.Set(counters.stale_retries);
  data_loss_retries_.Set(counters.data_loss_retries);
  lanes_quarantined_.Set(counters.lanes_quarantined);
  rows_.Set(counters.rows);
  const SpeculativeCounters& spec = engine.speculation().counters();
  spec_windows_.Set(spec.windows);
  for (size_t place = 0; place < spec_drafted_.size(); ++place) {
    spec_drafted_[place].Set(spec.drafted[place]);
    spec_accepted_[place].Set(spec.accepted[place]);
  }
  spec_window_tokens_.Set(spec.windows_by_accepted, static_cast<double>(spec.windows + spec.num_accepted()));
  spec_answer_length_.Set(spec.answers_by_length, spec.answer_lengths_sum);
  spec_accept_length_.Set(spec.accept_length());
  spec_draft_length_.Set(engine.speculation().draft_length());
  const kvtransfer::TargetCounters& transfer = engine.transfer().counters();
  fetched_bytes_.Set(transfer.fetched_bytes);
  wrong_sums_.Set(transfer.wrong_sums);
  refetched_pages_.Set(transfer.refetched_pages);
  fetch_errors_.Set(transfer.fetch_errors);
  stale_messages_.Set(transfer.stale_messages);
  unknown_epochs_.Set(transfer.unknown_epochs);
  repeats_.Set(transfer.repeats_sent);
}

void DecodeMetrics::PeerUp(const std::string& peer, const std::vector<kvtransfer::PeerLane>& lanes,
                           size_t num_refused) {
  PeerDown(peer);
  for (const kvtransfer::PeerLane& lane : lanes) {
    prometheus::Gauge& rate = metrics_.AddGauge("tandem_kv_transfer_lane_bytes_per_second",
                                                "Rate of each lane in use as measured when it was opened; 0 while its "
                                                "prefill worker is down.",
                                                {{"peer", peer}, {"lane", lane.kind}});
    rate.Set(lane.bytes_per_second);
    lane_rates_[peer].push_back(&rate);
  }
  lanes_refused_.Increment(static_cast<double>(num_refused));
}

void DecodeMetrics::PeerDown(const std::string& peer) {
  for (prometheus::Gauge* const rate : lane_rates_[peer]) rate->Set(0);
  lane_rates_.erase(peer);
}

}  // namespace tandem::decode

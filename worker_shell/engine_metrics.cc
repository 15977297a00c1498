#include "worker_shell/engine_metrics.h"

namespace tandem::worker_shell {

EngineMetrics::EngineMetrics(base::Metrics& m)
    : running_requests_(
          m.AddGauge("tandem_num_running_reqs",
                     "Requests that hold KV pages and are being computed; at decode each choice counts.")),
      queued_requests_(m.AddGauge("tandem_num_queue_reqs", "Requests that wait for KV pages.")),
      queued_tokens_(m.AddGauge("tandem_num_queue_tokens",
                                "Tokens whose KV is not computed yet: of requests that wait and, in prefill, of "
                                "prompts under way.")),
      kv_pages_used_(m.AddGauge("tandem_kv_pages_used", "KV pages of 64 tokens that somebody holds.")),
      kv_pages_total_(m.AddGauge("tandem_kv_pages", "KV pages of the pool.")),
      mailbox_messages_(m.AddGauge("tandem_engine_mailbox_messages", "Messages that wait for the engine's thread.")),
      step_seconds_(m.AddHistogram("tandem_engine_step_seconds", "Time of engine steps with a forward pass.",
                                   base::LatencyBuckets())),
      steps_(m.AddCounter("tandem_engine_steps_total", "Forward passes.")),
      requests_received_(m.AddCounter("tandem_requests_received_total", "Requests that came in.")),
      strangers_refused_(m.AddCounter("tandem_strangers_refused_total",
                                      "Calls of routers or decode workers that did not show the cluster's token.")) {}

void EngineMetrics::Update(const Sample& sample) {
  running_requests_.Set(sample.load.running_sequences());
  queued_requests_.Set(sample.load.waiting_requests());
  queued_tokens_.Set(static_cast<double>(sample.load.waiting_tokens()));
  kv_pages_used_.Set(static_cast<double>(sample.pages.num_used()));
  kv_pages_total_.Set(static_cast<double>(sample.pages.num_pages()));
  mailbox_messages_.Set(static_cast<double>(sample.mailbox_messages));
  if (sample.num_steps > last_steps_) step_seconds_.Observe(absl::ToDoubleSeconds(sample.step_time));
  last_steps_ = sample.num_steps;
  steps_.Set(sample.num_steps);
  requests_received_.Set(sample.num_received);
}

}  // namespace tandem::worker_shell

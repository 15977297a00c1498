#include "tests/sim/fault_plan.h"

#include "absl/strings/str_cat.h"

namespace tandem::sim {

FaultPlan DrawFaultPlan(EventQueue& events) {
  FaultPlan plan;
  plan.num_prefills = static_cast<int>(events.DrawInt(1, 3));
  plan.num_decodes = static_cast<int>(events.DrawInt(1, 3));
  plan.num_requests = static_cast<int>(events.DrawInt(20, 90));
  plan.num_bursts = static_cast<int>(events.DrawInt(1, 8));
  plan.max_new_tokens = static_cast<int>(events.Chance(0.5) ? events.DrawInt(20, 120) : events.DrawInt(120, 300));
  plan.prefill_pages = static_cast<int>(events.DrawInt(5, 24));
  plan.decode_pages = static_cast<int>(events.Chance(0.6) ? events.DrawInt(5, 12) : events.DrawInt(13, 40));
  plan.chunked_prefill_size = static_cast<int>(events.DrawInt(16, 256));
  plan.max_running_requests = static_cast<int>(events.DrawInt(1, 12));
  plan.num_lanes = static_cast<int>(events.DrawInt(1, 2));
  plan.faults_end = absl::Seconds(12);
  plan.cancel = events.Chance(0.7) ? 0.25 * events.DrawUnit() : 0;
  plan.deadline = events.Chance(0.3) ? 0.2 * events.DrawUnit() : 0;
  plan.slow_message = events.Chance(0.5) ? 0.02 * events.DrawUnit() : 0;
  plan.slow_step = events.Chance(0.5) ? 0.05 * events.DrawUnit() : 0;
  plan.reads_dead_memory = events.Chance(0.5);
  plan.credit_bytes = events.Chance(0.5) ? 8 * events.DrawInt(4, 40) : 16 * 1024;
  plan.slow_reader = events.Chance(0.5) ? 0.3 * events.DrawUnit() : 0;
  if (events.Chance(0.15)) return plan;  // a run in which nothing breaks
  if (events.Chance(0.15)) {             // one in which streams break and nothing else
    plan.router_link_cuts = static_cast<int>(events.DrawInt(1, 12));
    return plan;
  }
  const auto times = [&](double chance, int max) {
    return events.Chance(chance) ? static_cast<int>(events.DrawInt(1, max)) : 0;
  };
  plan.prefill_crashes = times(0.5, 3);
  plan.decode_crashes = times(0.4, 3);
  plan.router_crashes = times(0.25, 1);
  plan.pair_cuts = times(0.5, 4);
  plan.router_link_cuts = times(0.5, 4);
  plan.fetch_error = events.Chance(0.4) ? 0.1 * events.DrawUnit() : 0;
  plan.fetch_corrupt = events.Chance(0.4) ? 0.1 * events.DrawUnit() : 0;
  plan.fetch_stall = events.Chance(0.25) ? 0.02 * events.DrawUnit() : 0;
  return plan;
}

std::string FaultPlan::ToString() const {
  return absl::StrCat(
      "prefills=", num_prefills, " decodes=", num_decodes, " requests=", num_requests, " bursts=", num_bursts,
      " new_tokens_max=", max_new_tokens, " prefill_pages=", prefill_pages, " decode_pages=", decode_pages,
      " chunk=", chunked_prefill_size, " running_max=", max_running_requests, " lanes=", num_lanes,
      " drafts=", num_drafts, " crashes(p,d,r)=", prefill_crashes, ",", decode_crashes, ",", router_crashes,
      " cuts(pair,router)=", pair_cuts, ",", router_link_cuts, " loses_a_holder=", loses_a_holder ? 1 : 0,
      " credit=", credit_bytes, " slow_reader=", slow_reader, " cancel=", cancel, " deadline=", deadline,
      " fetch(error,corrupt,stall)=", fetch_error, ",", fetch_corrupt, ",", fetch_stall,
      " slow(message,step)=", slow_message, ",", slow_step, " reads_dead_memory=", reads_dead_memory ? 1 : 0);
}

}  // namespace tandem::sim

// A whole simulated cluster and its life: builds the processes, sends the load, lets faults strike, then checks.
//
// Everything a run does follows from its seed: cluster size, pools, load, faults, delays. Real are both engines, both
// transfer machines, the schedulers, allocators, assemblers and the router's cluster, links and request states;
// simulated are time, network, lanes, threads and the model, whose next token depends on every KV byte that it reads.
// Checked: every answer is the oracle's, no token twice, missing or wrong; failures have a cause that faults explain;
// every request ends within a bound once faults have stopped; cancels are confirmed; nobody stores into a page that
// nobody holds; at rest every page, epoch, fetch and lease is back; afterwards the cluster serves as on its first day.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/client_request.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/fault_plan.h"
#include "tests/sim/sim_decode.h"
#include "tests/sim/sim_prefill.h"
#include "tests/sim/sim_router.h"
#include "tests/sim/violations.h"

namespace tandem::sim {

struct RunSummary {
  FaultPlan plan;
  std::vector<std::string> violations;
  int num_complete = 0;
  int num_failed = 0;
  int num_client_left = 0;
  int num_router_lost = 0;
  int num_again = 0;               // of all of them, those that were started twice or more
  int num_resumed = 0;             // of those, after their first token
  int num_of_several_choices = 0;  // of all of them
  int64_t retractions = 0;         // of decode processes that lived to the end
  int64_t credit_retractions = 0;
  int64_t kept_resumes = 0;  // of sequences whose KV was on the host meanwhile
  int64_t swap_outs = 0;     // of sequences from their device buffers
  int64_t said_again = 0;    // tokens, to routers that came back
  int64_t drafts_accepted = 0;
  int64_t tokens_replayed = 0;
  int64_t wrong_sums = 0;
  int64_t leases_lapsed = 0;  // at prefill processes that lived to the end
  int64_t num_events = 0;
  absl::Duration simulated_time = absl::ZeroDuration();

  std::string ToString() const;
};

// What a seed draws.
FaultPlan PlanOfSeed(uint64_t seed);

class SimCluster final {
 public:
  explicit SimCluster(uint64_t seed);
  // As planned; the seed draws load and times alone.
  SimCluster(uint64_t seed, const FaultPlan& plan);
  ~SimCluster();
  RunSummary Run();

 private:
  SimCluster(uint64_t seed, const FaultPlan* plan);  // drawn from the seed where it is null

  void PlanLoad();
  void PlanFaults();
  void LoseAHolder();
  void StartRouter();
  void StartPrefill(size_t index);
  void StartDecode(size_t index);
  void Submit(const std::shared_ptr<ClientRequest>& client);
  std::shared_ptr<ClientRequest> MakeRequest(absl::Duration submit_at);
  void AddOptions(ClientRequest& client);
  template <typename Workers>
  bool StaysDown(const Workers& workers);
  // Runs until `is_done` or until the time is over; false then.
  template <typename Condition>
  bool RunUntil(absl::Duration until, Condition is_done);
  void CheckEnded();
  void CheckAtRest();
  void CheckServesAgain();
  RunSummary Summarise() const;

  EventQueue events_;
  EventQueue option_draws_;  // numbers alone, of their own: a new option changes no other draw
  Violations violations_{events_};
  const FaultPlan plan_;
  std::vector<WorkerName> prefill_names_, decode_names_;
  std::vector<std::shared_ptr<SimPrefill>> prefills_;
  std::vector<std::shared_ptr<SimDecode>> decodes_;
  std::shared_ptr<SimRouter> router_;
  std::vector<std::shared_ptr<ClientRequest>> clients_;
};

}  // namespace tandem::sim

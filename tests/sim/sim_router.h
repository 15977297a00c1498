// One simulated router process: the real cluster (links, views, pairs) and the real state of each request, over
// simulated channels. What is left out is HTTP.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "router/cluster.h"
#include "router/request_state.h"
#include "router/worker_channel.h"
#include "tests/sim/client_request.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/fault_plan.h"
#include "tests/sim/number_tokenizer.h"
#include "tests/sim/sim_live_server.h"
#include "tests/sim/violations.h"

namespace tandem::sim {

// The live server of the process that listens at an rpc address now; null where there is none.
using FindWorker = std::function<std::shared_ptr<SimLiveServer>(const std::string& rpc_address)>;

class SimRouter final : public std::enable_shared_from_this<SimRouter> {
 public:
  SimRouter(EventQueue& events, const FaultPlan& plan, Violations& violations, std::vector<std::string> prefills,
            std::vector<std::string> decodes, FindWorker find_worker);
  ~SimRouter();  // a crash: its clients are gone
  void Start() { Tick(); }

  // False where no pair is usable now: the client tries again.
  bool Submit(const std::shared_ptr<ClientRequest>& client);
  // Cuts one connection to a worker.
  void CutOneLink();
  size_t num_open() const { return runs_.size(); }

 private:
  class Run;
  class Channel;
  void Tick();
  std::unique_ptr<router::WorkerChannel> Connect(const std::string& address,
                                                 router::WorkerChannel::Events channel_events);

  EventQueue& events_;
  const FaultPlan& plan_;
  Violations& violations_;
  const FindWorker find_worker_;
  const NumberTokenizer tokenizer_;
  std::vector<std::weak_ptr<SimLink>> links_;
  std::map<int, std::unique_ptr<Run>> runs_;  // by number of the client's request
  std::vector<int> released_;
  std::unique_ptr<router::Cluster> cluster_;
  uint64_t turn_ = 0;
};

}  // namespace tandem::sim

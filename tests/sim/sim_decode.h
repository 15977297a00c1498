// One simulated decode process: the real engine on the hash model, with simulated streams, links and lanes around it.
//
// A fetch copies in two halves at different times, as a lane that is no transaction does; it may fail, hang, or flip a
// bit. Every copy is checked: nobody stores into a page that its worker does not hold.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decode_worker/engine.h"
#include "decode_worker/outbox.h"
#include "tests/sim/engine_actor.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/fault_plan.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/hisparse_model.h"
#include "tests/sim/mirror_model.h"
#include "tests/sim/pool_memory.h"
#include "tests/sim/sim_link.h"
#include "tests/sim/sim_live_server.h"
#include "tests/sim/sim_prefill.h"
#include "tests/sim/violations.h"

namespace tandem::sim {

// The process that listens at a bootstrap address now; null where there is none.
using FindPrefill = std::function<std::shared_ptr<SimPrefill>(const std::string& bootstrap_address)>;

class SimDecode final : public decode::Outbox, public std::enable_shared_from_this<SimDecode> {
 public:
  SimDecode(EventQueue& events, const FaultPlan& plan, Violations& violations, const WorkerName& name,
            FindPrefill find_prefill);
  ~SimDecode() override;
  void Start() { live_->Start(); }

  const decode::Engine& engine() const { return engine_; }
  SimLiveServer& live() { return *live_; }
  size_t num_fetches() const { return fetches_.size(); }

  // ---- Outbox ----
  void ToRouter(uint64_t stream, proto::WorkerMessage message) override { live_->Send(stream, std::move(message)); }
  void ToPeer(kvtransfer::SendMessage message) override;
  void Fetch(kvtransfer::StartFetch fetch) override;
  void Cancel(kvtransfer::CancelFetches cancel) override;
  void Reset(kvtransfer::ResetPeer reset) override;
  void LinkWith(const std::vector<std::string>& addresses) override;

 private:
  struct Peer {
    uint64_t session = 0;  // of the link, 0 where there is none
    std::shared_ptr<SimLink> link;
    std::weak_ptr<SimPrefill> prefill;
    std::shared_ptr<PoolMemory> memory;  // mapped
    int num_failures = 0;
  };
  struct RunningFetch {
    kvtransfer::StartFetch fetch;
    std::weak_ptr<SimPrefill> prefill;
    std::shared_ptr<PoolMemory> memory;
  };

  void Greet(const std::string& address);
  void OnLinkClosed(const std::string& address, uint64_t session, const absl::Status& why);
  void FailFetches(const std::string& peer);
  void CancelSoon(uint64_t fetch_id);
  void EndFetch(uint64_t fetch_id, absl::Status status);
  // Copies the share [from, to) of each run.
  void Copy(const RunningFetch& running, double from, double to);
  void FinishFetch(uint64_t fetch_id);

  EventQueue& events_;
  const FaultPlan& plan_;
  Violations& violations_;
  const std::string instance_;
  const FindPrefill find_prefill_;
  const uint64_t incarnation_;
  const kvcache::KvLayout layout_;
  PoolMemory memory_;
  PoolMemory retraction_memory_;  // of a few pages; every other decode worker keeps those of retracted sequences there
  const HiSparseOptions hisparse_;
  const std::unique_ptr<model::ModelExecutor> model_;  // every other decode worker computes as on a device
  decode::Engine engine_;
  std::shared_ptr<EngineActor<decode::Engine>> actor_;
  std::shared_ptr<SimLiveServer> live_;
  std::map<std::string, Peer> peers_;
  std::map<uint64_t, RunningFetch> fetches_;
  uint64_t next_session_ = 1;
};

}  // namespace tandem::sim

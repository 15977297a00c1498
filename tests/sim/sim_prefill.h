// One simulated prefill process: the real engine on the hash model, with simulated streams around it. It is destroyed
// when it crashes; its memory lives on as long as somebody maps it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "kvtransfer/readable_epochs.h"
#include "prefill_worker/engine.h"
#include "prefill_worker/outbox.h"
#include "tests/sim/engine_actor.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/fault_plan.h"
#include "tests/sim/hash_model.h"
#include "tests/sim/pool_memory.h"
#include "tests/sim/sim_link.h"
#include "tests/sim/sim_live_server.h"

namespace tandem::sim {

struct WorkerName {
  std::string rpc_address;
  std::string bootstrap_address;  // prefill workers only
};

inline constexpr int kSimVocab = 97;
inline HashModelOptions SimModel(const FaultPlan& plan) {
  return {.vocab_size = kSimVocab, .weights_seed = 20261130, .has_mtp = plan.num_drafts > 0};
}
inline int SimLayers(const FaultPlan& plan) { return 2 + (plan.num_drafts > 0 ? 1 : 0); }

class SimPrefill final : public prefill::Outbox, public std::enable_shared_from_this<SimPrefill> {
 public:
  SimPrefill(EventQueue& events, const FaultPlan& plan, const WorkerName& name);
  ~SimPrefill() override;
  void Start() { live_->Start(); }

  uint64_t incarnation() const { return incarnation_; }
  const prefill::Engine& engine() const { return engine_; }
  const std::shared_ptr<PoolMemory>& memory() const { return memory_; }
  SimLiveServer& live() { return *live_; }
  bool IsReadable(uint64_t target_incarnation, uint64_t epoch) const {
    return readable_.IsReadable({.target_incarnation = target_incarnation, .epoch = epoch});
  }

  // A decode worker's control stream. `deliver` runs at decode's end of the link.
  void AcceptTarget(const std::shared_ptr<SimLink>& link, uint64_t target_incarnation, const std::string& instance,
                    std::function<void(proto::TransferMessage)> deliver);
  void ReceiveFromTarget(const std::shared_ptr<SimLink>& link, proto::TransferMessage message);
  void CutTargets();

  void ToTarget(kvtransfer::SendToTarget message) override;

 private:
  struct Session {
    std::shared_ptr<SimLink> link;
    std::string instance;
    std::function<void(proto::TransferMessage)> deliver;
  };
  void Lose(uint64_t target_incarnation, const std::shared_ptr<SimLink>& link);

  const uint64_t incarnation_;
  const kvcache::KvLayout layout_;
  std::shared_ptr<PoolMemory> memory_;
  HashModel model_;
  kvtransfer::ReadableEpochs readable_;
  prefill::Engine engine_;
  std::shared_ptr<EngineActor<prefill::Engine>> actor_;
  std::shared_ptr<SimLiveServer> live_;
  std::map<uint64_t, Session> sessions_;  // by decode incarnation
};

}  // namespace tandem::sim

#include "tests/sim/sim_prefill.h"

#include <utility>

namespace tandem::sim {
namespace {

proto::WorkerHello HelloOf(const WorkerName& name, uint64_t incarnation, int64_t num_pages) {
  proto::WorkerHello hello;
  hello.mutable_identity()->set_instance(name.rpc_address);
  hello.mutable_identity()->set_incarnation(incarnation);
  hello.mutable_identity()->set_role("prefill");
  hello.mutable_identity()->set_protocol_version(1);
  hello.set_context_length_max(static_cast<uint32_t>(num_pages * kvcache::kPageTokens));
  hello.set_kv_tokens_capacity(num_pages * kvcache::kPageTokens);
  hello.set_bootstrap_address(name.bootstrap_address);
  return hello;
}

}  // namespace

SimPrefill::SimPrefill(EventQueue& events, const FaultPlan& plan, const WorkerName& name)
    : incarnation_(events.Draw() | 1),
      layout_({.num_layers = SimLayers(plan), .num_pages = plan.prefill_pages}),
      memory_(std::make_shared<PoolMemory>(layout_)),
      model_(memory_->pool(), SimModel(plan)),
      engine_({.chunks = {.num_tokens_max = plan.chunked_prefill_size, .num_chunks_max = 8},
               .num_waiting_max = kSimLineMax,
               .transfer = {.incarnation = incarnation_, .layout = layout_},
               .prefix_cache = kvcache::PrefixIndexOptions()},
              events.clock(), model_, memory_->pool(), &readable_, *this),
      actor_(std::make_shared<EngineActor<prefill::Engine>>(events, plan, engine_)),
      live_(
          std::make_shared<SimLiveServer>(events, HelloOf(name, incarnation_, plan.prefill_pages),
                                          SimLiveServer::Hooks{.attached = [](uint64_t, const proto::Identity&) {},
                                                               .message = [](uint64_t, const proto::RouterMessage&) {},
                                                               .lost = [](uint64_t) {},
                                                               .generate = nullptr,
                                                               .load = [this] { return engine_.load(); }})) {}

SimPrefill::~SimPrefill() {
  actor_->Stop();
  live_->Stop();
  for (auto& [target, session] : sessions_) session.link->Close(LinkEnd::kServer);
}

void SimPrefill::AcceptTarget(const std::shared_ptr<SimLink>& link, uint64_t target_incarnation,
                              const std::string& instance, std::function<void(proto::TransferMessage)> deliver) {
  // A new session of the same decode worker ends its older one first.
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    if (it->second.instance == instance) {
      it->second.link->Close(LinkEnd::kServer);
      actor_->Post([old = it->first](prefill::Engine& engine) { engine.TargetDown(old); });
      it = sessions_.erase(it);
    } else {
      ++it;
    }
  }
  sessions_[target_incarnation] = {.link = link, .instance = instance, .deliver = std::move(deliver)};
  link->OnClosed(LinkEnd::kServer, [weak = weak_from_this(), target_incarnation, link] {
    if (auto self = weak.lock()) self->Lose(target_incarnation, link);
  });
  actor_->Post([=](prefill::Engine& engine) { engine.TargetUp(target_incarnation, instance); });
}

void SimPrefill::Lose(uint64_t target_incarnation, const std::shared_ptr<SimLink>& link) {
  const auto it = sessions_.find(target_incarnation);
  if (it == sessions_.end() || it->second.link != link) return;
  sessions_.erase(it);
  actor_->Post([=](prefill::Engine& engine) { engine.TargetDown(target_incarnation); });
}

void SimPrefill::ReceiveFromTarget(const std::shared_ptr<SimLink>& link, proto::TransferMessage message) {
  for (const auto& [target, session] : sessions_) {
    if (session.link != link) continue;
    actor_->Post([target = target, message = std::move(message)](prefill::Engine& engine) {
      engine.TargetMessage(target, message);
    });
    return;
  }
}

void SimPrefill::CutTargets() {
  for (auto& [target, session] : sessions_) session.link->Cut();
}

void SimPrefill::ToTarget(kvtransfer::SendToTarget message) {
  const auto it = sessions_.find(message.target_incarnation);
  if (it == sessions_.end()) return;
  it->second.link->Send(LinkEnd::kServer, 0,
                        [deliver = it->second.deliver, message = std::move(message.message)] { deliver(message); });
}

}  // namespace tandem::sim

#include "tests/sim/sim_decode.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::sim {
namespace {

proto::WorkerHello HelloOf(const WorkerName& name, uint64_t incarnation, int64_t num_pages) {
  proto::WorkerHello hello;
  hello.mutable_identity()->set_instance(name.rpc_address);
  hello.mutable_identity()->set_incarnation(incarnation);
  hello.mutable_identity()->set_role("decode");
  hello.mutable_identity()->set_protocol_version(1);
  hello.set_context_length_max(static_cast<uint32_t>(num_pages * kvcache::kPageTokens));
  hello.set_kv_tokens_capacity(num_pages * kvcache::kPageTokens);
  return hello;
}

int NumRowsMax(const FaultPlan& plan) { return plan.max_running_requests * (1 + plan.num_drafts) + 32; }

// A quarter of the decode workers has it, with buffers that never grow or grow to four kept pages, for one whole buffer
// or a few.
HiSparseOptions HiSparseOf(uint64_t incarnation, const FaultPlan& plan) {
  if (plan.num_device_buffers == 0 && (incarnation & 12) != 4) return {};
  const int num_kept_pages_max = (incarnation & 16) != 0 ? 1 : 4;
  const int num_buffers =
      plan.num_device_buffers > 0 ? plan.num_device_buffers : 1 + static_cast<int>(incarnation >> 5 & 3);
  return {.num_device_pages = num_buffers * (1 + num_kept_pages_max), .num_kept_pages_max = num_kept_pages_max};
}

std::unique_ptr<model::ModelExecutor> BuildModel(uint64_t incarnation, const kvcache::KvPool& pool,
                                                 const FaultPlan& plan, const HiSparseOptions& hisparse) {
  if (hisparse.num_device_pages > 0) {
    return std::make_unique<HiSparseModel>(pool, SimModel(plan), NumRowsMax(plan), hisparse);
  }
  if ((incarnation & 2) != 0) return std::make_unique<MirrorModel>(pool, SimModel(plan));
  return std::make_unique<HashModel>(pool, SimModel(plan));
}

}  // namespace

SimDecode::SimDecode(EventQueue& events, const FaultPlan& plan, Violations& violations, const WorkerName& name,
                     FindPrefill find_prefill)
    : events_(events),
      plan_(plan),
      violations_(violations),
      instance_(name.rpc_address),
      find_prefill_(std::move(find_prefill)),
      incarnation_(events.Draw() | 1),
      layout_({.num_layers = SimLayers(plan), .num_pages = plan.decode_pages}),
      memory_(layout_),
      retraction_memory_(
          {.num_layers = SimLayers(plan), .num_pages = 1 + static_cast<int64_t>(incarnation_ >> 9 & 15)}),
      hisparse_(HiSparseOf(incarnation_, plan)),
      model_(BuildModel(incarnation_, memory_.pool(), plan, hisparse_)),
      engine_({.batch = {.num_sequences_max = plan.max_running_requests,
                         .num_rows_max = NumRowsMax(plan),
                         .num_rows_per_sequence_max = model::DeviceBuffers::kRowsPerSequenceMax,
                         .num_kept_pages_max = hisparse_.num_kept_pages_max},
               .num_waiting_max = kSimLineMax,
               .context_length_max = layout_.num_pages * kvcache::kPageTokens,
               .speculative = {.num_steps = plan.num_drafts},
               .transfer = {.incarnation = incarnation_, .layout = layout_, .lane_policy = {}},
               .num_device_pages = hisparse_.num_device_pages,
               .prefix_cache = kvcache::PrefixIndexOptions(),
               .keeps_generated_pages = (incarnation_ & 1 << 13) != 0,
               .retraction_pool = (incarnation_ & 256) != 0 ? std::optional(retraction_memory_.pool()) : std::nullopt},
              events.clock(), *model_, memory_.pool(), *this),
      actor_(std::make_shared<EngineActor<decode::Engine>>(events, plan, engine_)),
      live_(std::make_shared<SimLiveServer>(
          events, HelloOf(name, incarnation_, layout_.num_pages),
          SimLiveServer::Hooks{
              .attached =
                  [this](uint64_t stream, const proto::Identity& router) {
                    actor_->Post([=](decode::Engine& engine) { engine.RouterAttached(stream, router); });
                  },
              .message =
                  [this](uint64_t stream, const proto::RouterMessage& message) {
                    actor_->Post([=](decode::Engine& engine) { engine.RouterMessage(stream, message); });
                  },
              .lost =
                  [this](uint64_t stream) { actor_->Post([=](decode::Engine& engine) { engine.RouterLost(stream); }); },
              .generate =
                  [this](decode::GenerateRequest request) {
                    actor_->Post([request = std::move(request)](decode::Engine& engine) { engine.Generate(request); });
                  },
              .load = [this] { return engine_.load(); }})) {}

SimDecode::~SimDecode() {
  actor_->Stop();
  live_->Stop();
  for (auto& [address, peer] : peers_) {
    if (peer.link != nullptr) peer.link->Close(LinkEnd::kClient);
  }
}

// ---- Links ----

void SimDecode::LinkWith(const std::vector<std::string>& addresses) {
  const std::set<std::string> wanted(addresses.begin(), addresses.end());
  for (auto it = peers_.begin(); it != peers_.end();) {
    if (wanted.contains(it->first)) {
      ++it;
      continue;
    }
    const std::string address = it->first;
    if (it->second.link != nullptr) it->second.link->Close(LinkEnd::kClient);
    it = peers_.erase(it);
    FailFetches(address);
    actor_->Post(
        [=](decode::Engine& engine) { engine.PeerDown(address, absl::UnavailableError("not named any more")); });
  }
  for (const std::string& address : wanted) {
    if (peers_.contains(address)) continue;
    peers_[address];
    Greet(address);
  }
}

void SimDecode::Greet(const std::string& address) {
  events_.After(
      events_.DrawDuration(absl::Milliseconds(1), absl::Milliseconds(20)), [weak = weak_from_this(), address] {
        const auto self = weak.lock();
        if (self == nullptr) return;
        const auto it = self->peers_.find(address);
        if (it == self->peers_.end() || it->second.link != nullptr) return;
        Peer& peer = it->second;
        const std::shared_ptr<SimPrefill> prefill = self->find_prefill_(address);
        if (prefill == nullptr) {
          if (peer.num_failures++ == 0) {
            self->actor_->Post(
                [=](decode::Engine& engine) { engine.PeerDown(address, absl::UnavailableError("refused")); });
          }
          self->events_.After(std::min(absl::Milliseconds(100) * peer.num_failures, absl::Seconds(2)), [weak, address] {
            if (const auto alive = weak.lock()) alive->Greet(address);
          });
          return;
        }
        peer.num_failures = 0;
        peer.session = self->next_session_++;
        peer.link = std::make_shared<SimLink>(self->events_, self->plan_);
        peer.prefill = prefill;
        peer.memory = prefill->memory();
        const uint64_t session = peer.session;
        peer.link->OnClosed(LinkEnd::kClient, [weak, address, session] {
          if (const auto alive = weak.lock()) {
            alive->OnLinkClosed(address, session, absl::UnavailableError("the control stream was cut"));
          }
        });
        prefill->AcceptTarget(peer.link, self->incarnation_, self->instance_,
                              [weak, address](proto::TransferMessage message) {
                                if (const auto alive = weak.lock()) {
                                  alive->actor_->Post([address, message = std::move(message)](decode::Engine& engine) {
                                    engine.PeerMessage(address, message);
                                  });
                                }
                              });
        kvtransfer::SourcePeer source{.incarnation = prefill->incarnation(),
                                      .session = session,
                                      .num_pages = self->plan_.prefill_pages,
                                      .lanes = {{.kind = "sim_shm", .bytes_per_second = 1e9}}};
        if (self->plan_.num_lanes == 2) source.lanes.push_back({.kind = "sim_am", .bytes_per_second = 1e8});
        // Lanes are opened and warmed up.
        self->events_.After(self->events_.DrawDuration(absl::Milliseconds(1), absl::Milliseconds(30)),
                            [weak, address, session, source] {
                              const auto alive = weak.lock();
                              if (alive == nullptr) return;
                              const auto peer = alive->peers_.find(address);
                              if (peer == alive->peers_.end() || peer->second.session != session) return;
                              alive->actor_->Post([=](decode::Engine& engine) { engine.PeerUp(address, source); });
                            });
      });
}

void SimDecode::OnLinkClosed(const std::string& address, uint64_t session, const absl::Status& why) {
  const auto it = peers_.find(address);
  if (it == peers_.end() || it->second.session != session) return;
  it->second.session = 0;
  it->second.link = nullptr;
  FailFetches(address);
  actor_->Post([=](decode::Engine& engine) { engine.PeerDown(address, why); });
  events_.After(absl::Milliseconds(100), [weak = weak_from_this(), address] {
    if (const auto self = weak.lock()) self->Greet(address);
  });
}

void SimDecode::ToPeer(kvtransfer::SendMessage message) {
  const auto it = peers_.find(message.peer);
  if (it == peers_.end() || it->second.session == 0 || it->second.session != message.session) return;
  const std::shared_ptr<SimLink> link = it->second.link;
  link->Send(LinkEnd::kClient, 0, [prefill = it->second.prefill, link, message = std::move(message.message)] {
    if (const auto alive = prefill.lock()) alive->ReceiveFromTarget(link, message);
  });
}

void SimDecode::Reset(kvtransfer::ResetPeer reset) {
  const auto it = peers_.find(reset.peer);
  if (it == peers_.end() || it->second.session != reset.session || reset.session == 0) return;
  it->second.link->Close(LinkEnd::kClient);
  OnLinkClosed(reset.peer, reset.session, reset.status);
}

// ---- Lanes ----

void SimDecode::Fetch(kvtransfer::StartFetch fetch) {
  const uint64_t fetch_id = fetch.fetch_id;
  const auto peer = peers_.find(fetch.peer);
  if (peer == peers_.end() || peer->second.session == 0) {
    actor_->Post([=](decode::Engine& engine) { engine.FetchDone(fetch_id, absl::CancelledError("peer is gone")); });
    return;
  }
  uint64_t num_bytes = 0;
  for (const kvtransfer::ByteRun& run : fetch.runs) num_bytes += run.num_bytes;
  absl::Duration time = events_.DrawDuration(absl::Microseconds(30), absl::Microseconds(800)) +
                        absl::Nanoseconds(num_bytes * (fetch.lane == 0 ? 1 : 10));
  if (events_.now() < plan_.faults_end && events_.Chance(plan_.fetch_stall)) {
    time += events_.DrawDuration(absl::Milliseconds(500), absl::Seconds(8));
  }
  fetches_[fetch_id] = {.fetch = std::move(fetch), .prefill = peer->second.prefill, .memory = peer->second.memory};
  events_.After(time / 2, [weak = weak_from_this(), fetch_id] {
    const auto self = weak.lock();
    if (self == nullptr || !self->fetches_.contains(fetch_id)) return;
    self->Copy(self->fetches_.at(fetch_id), 0, 0.5);
  });
  events_.After(time, [weak = weak_from_this(), fetch_id] {
    if (const auto self = weak.lock()) self->FinishFetch(fetch_id);
  });
}

void SimDecode::FinishFetch(uint64_t fetch_id) {
  const auto it = fetches_.find(fetch_id);
  if (it == fetches_.end()) return;
  const RunningFetch& running = it->second;
  const std::shared_ptr<SimPrefill> prefill = running.prefill.lock();
  if (prefill == nullptr && !plan_.reads_dead_memory) {
    EndFetch(fetch_id, absl::UnavailableError("the source is gone"));
    return;
  }
  // The second lane's source answers, and knows its epochs; the first reads whatever lies there.
  if (running.fetch.lane == 1 && (prefill == nullptr || !prefill->IsReadable(incarnation_, running.fetch.epoch))) {
    EndFetch(fetch_id, absl::AbortedError("the source knows no such epoch"));
    return;
  }
  const bool may_fail = events_.now() < plan_.faults_end;
  if (may_fail && events_.Chance(plan_.fetch_error)) {
    EndFetch(fetch_id, absl::UnavailableError("the lane failed"));
    return;
  }
  Copy(running, 0.5, 1);
  if (may_fail && events_.Chance(plan_.fetch_corrupt)) {
    const kvtransfer::ByteRun& run = running.fetch.runs.front();
    memory_.bytes()[run.target_offset + events_.Draw() % run.num_bytes] ^=
        std::byte{static_cast<uint8_t>(1 << events_.DrawInt(0, 7))};
  }
  EndFetch(fetch_id, absl::OkStatus());
}

void SimDecode::Copy(const RunningFetch& running, double from, double to) {
  for (const kvtransfer::ByteRun& run : running.fetch.runs) {
    const auto begin = static_cast<uint64_t>(static_cast<double>(run.num_bytes) * from);
    const auto end = static_cast<uint64_t>(static_cast<double>(run.num_bytes) * to);
    for (int64_t page = 0; page < layout_.num_pages; ++page) {
      if (engine_.pages().num_holds(static_cast<int32_t>(page)) > 0) continue;
      for (int layer = 0; layer < layout_.num_layers; ++layer) {
        for (const auto kind : {kvcache::RecordKind::kLatent, kvcache::RecordKind::kIndex}) {
          const auto page_begin = static_cast<uint64_t>(layout_.PageOffset(kind, layer, page));
          const uint64_t page_end = page_begin + layout_.PageBytes(kind);
          if (run.target_offset < page_end && page_begin < run.target_offset + run.num_bytes) {
            violations_.Add(absl::StrCat("epoch ", running.fetch.epoch, " stores into page ", page, " of ", instance_,
                                         ", which nobody holds"));
          }
        }
      }
    }
    std::memcpy(memory_.bytes().data() + run.target_offset + begin,
                running.memory->bytes().data() + run.source_offset + begin, end - begin);
  }
}

void SimDecode::EndFetch(uint64_t fetch_id, absl::Status status) {
  fetches_.erase(fetch_id);
  actor_->Post([fetch_id, status = std::move(status)](decode::Engine& engine) { engine.FetchDone(fetch_id, status); });
}

void SimDecode::Cancel(kvtransfer::CancelFetches cancel) {
  for (const auto& [id, running] : fetches_) {
    if (running.fetch.peer == cancel.peer && running.fetch.epoch == cancel.epoch) CancelSoon(id);
  }
}

void SimDecode::FailFetches(const std::string& peer) {
  for (const auto& [id, running] : fetches_) {
    if (running.fetch.peer == peer) CancelSoon(id);
  }
}

// A lane stops at the end of the piece that it is copying: until its fetch has ended it may store into the pages.
void SimDecode::CancelSoon(uint64_t fetch_id) {
  const absl::Duration soon = events_.DrawDuration(absl::ZeroDuration(), absl::Milliseconds(4));
  const double copied = events_.DrawUnit();
  events_.After(soon, [weak = weak_from_this(), fetch_id, copied] {
    const auto self = weak.lock();
    if (self == nullptr || !self->fetches_.contains(fetch_id)) return;  // it had ended before
    self->Copy(self->fetches_.at(fetch_id), 0, copied);
    self->EndFetch(fetch_id, absl::CancelledError("cancelled"));
  });
}

}  // namespace tandem::sim

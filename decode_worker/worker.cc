#include "decode_worker/worker.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/admin_http.h"
#include "base/check.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/peer_security.h"
#include "base/status_macros.h"
#include "decode_worker/engine.h"
#include "decode_worker/hisparse/pool_sizes.h"
#include "decode_worker/host_memory.h"
#include "decode_worker/metrics.h"
#include "decode_worker/outbox.h"
#include "decode_worker/peer_links.h"
#include "decode_worker/router_service.h"
#include "decode_worker/running_limit.h"
#include "kvcache/kv_pool.h"
#include "kvtransfer/lane_set.h"
#include "model/device_buffers.h"
#include "model/model_config.h"
#include "model/rank_group.h"
#include "worker_shell/compute_device.h"
#include "worker_shell/engine_status.h"
#include "worker_shell/engine_thread.h"
#include "worker_shell/identity.h"
#include "worker_shell/memory_room.h"
#include "worker_shell/prefix_cache_options.h"
#include "worker_shell/trace_log.h"
#include "worker_shell/worker_admin.h"

namespace tandem::decode {
namespace {

constexpr int kPartialRequestsMax = 64;  // prompts under way on one Bulk stream
// Generates that wait for the engine's thread: a step's worth of arrivals, with room for a burst.
constexpr size_t kMailboxCapacity = 4096;

}  // namespace

class Worker::Core final : public Outbox {
 public:
  Core(const DecodeConfig& config, const base::Clock& clock, std::vector<std::unique_ptr<kernels::Backend>> devices,
       HostMemory memory, std::optional<HostMemory> retraction_memory)
      : config_(config),
        clock_(clock),
        memory_(std::move(memory)),
        retraction_memory_(std::move(retraction_memory)),
        metrics_("decode"),
        decode_metrics_(metrics_, config.cluster.speculative.num_steps, config.num_ranks()),
        devices_(std::move(devices)) {}
  ~Core() override {
    admin_.reset();
    if (thread_ != nullptr) thread_->Stop();  // whoever still calls in finds a closed mailbox
  }

  absl::Status Start(const worker_shell::ServedModel& model, const kvcache::KvLayout& layout, const PoolSizes& sizes);
  absl::Status Drain(absl::Duration timeout);

  int rpc_port() const { return service_->port(); }
  int admin_port() const { return admin_->port(); }

  // ---- Outbox: the engine's thread ----
  void ToRouter(uint64_t stream_id, proto::WorkerMessage message) override {
    if (message.has_ended()) LogEnded(message.ended());
    service_->Send(stream_id, std::move(message));
  }
  void ToPeer(kvtransfer::SendMessage message) override { links_->Send(message); }
  void Fetch(kvtransfer::StartFetch fetch) override { lanes_->Run(std::move(fetch)); }
  void Cancel(kvtransfer::CancelFetches cancel) override { lanes_->Cancel(cancel); }
  void Reset(kvtransfer::ResetPeer reset) override {
    lanes_->Retire(reset.peer);
    links_->Reset(reset);
  }
  void LinkWith(const std::vector<std::string>& addresses) override { links_->LinkWith(addresses); }

 private:
  using Thread = worker_shell::EngineThread<Engine>;

  static void LogEnded(const proto::Ended& ended) {
    const RequestKey key = RequestKey::From(ended.key());
    LOG_INFO("request ended", {"req", key.ToString()}, {"cancelled", ended.is_cancelled() ? 1 : 0},
             {"error", ended.has_error() ? ended.error().message() : "none"});
  }
  worker_shell::LiveEvents LiveEvents();
  PeerLinksEvents LinkEvents();
  std::string DescribeLinks() const;
  absl::Status AcceptGenerate(GenerateRequest request);
  void AfterStep(const Engine& engine);
  worker_shell::WorkerVitals Vitals() const { return status_.Vitals(thread_->StepAge()); }

  const DecodeConfig config_;
  const base::Clock& clock_;
  HostMemory memory_;
  std::optional<HostMemory> retraction_memory_;
  std::unique_ptr<base::PeerSecurity> security_;  // outlives every stream
  base::Metrics metrics_;
  DecodeMetrics decode_metrics_;
  worker_shell::EngineStatus status_;
  const std::vector<std::unique_ptr<kernels::Backend>> devices_;  // by rank
  std::unique_ptr<model::ModelExecutor> executor_;
  const model::RankGroup* ranks_ = nullptr;    // the executor, where it has several
  const model::Pipeline* pipeline_ = nullptr;  // the executor, where it has stages
  std::string running_limit_;                  // how many sequences hold pages at a time, and why
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Thread> thread_;
  // Destroyed in this order from below: streams, links, lanes; their last events meet a closed mailbox.
  std::unique_ptr<kvtransfer::LaneSet> lanes_;
  std::unique_ptr<PeerLinks> links_;
  std::unique_ptr<RouterService> service_;
  std::unique_ptr<base::AdminHttpServer> admin_;
};

absl::Status Worker::Core::Start(const worker_shell::ServedModel& model, const kvcache::KvLayout& layout,
                                 const PoolSizes& sizes) {
  ASSIGN_OR_RETURN(security_, base::PeerSecurity::Load(config_.peers, clock_));
  const int num_steps = config_.cluster.speculative.num_steps;
  const RunningMemory running_memory{.num_pages = layout.num_pages,
                                     .num_device_pages = sizes.num_device_pages,
                                     .num_kept_pages_max = sizes.num_kept_pages_max,
                                     .kv_bytes = sizes.device_bytes,
                                     .vocab_size = model.config().vocab_size,
                                     .num_drafts = num_steps};
  const RunningLimit running = PlanRunningLimit(running_memory, config_.max_running_requests);
  running_limit_ = decode::Describe(running, running_memory);
  LOG_INFO("max_running_requests", {"limit", running_limit_});
  const int num_rows_max = running.num_sequences * (1 + num_steps) + config_.replay_tokens_per_step;
  const auto pool_bytes = memory_.bytes().first(layout.pool_bytes());
  ASSIGN_OR_RETURN(const kvcache::KvPool pool, kvcache::KvPool::Over(pool_bytes, layout));
  ASSIGN_OR_RETURN(
      worker_shell::WorkerExecutor built,
      model.BuildOnRanks(
          devices_, layout, pool_bytes,
          {.num_rows_max = num_rows_max,
           .writes_back_kv = false,
           .device_buffers = {.num_pages = sizes.num_device_pages,
                              .num_buffer_pages_max = 1 + sizes.num_kept_pages_max,
                              .clock = &clock_}},
          {.row_split = config_.tensor_parallel_size > 1 ? model::RowSplit::kAllRows : model::RowSplit::kBySequence,
           .kv_placement = config_.tensor_parallel_size > 1 ? model::KvPlacement::kCopied : model::KvPlacement::kShared,
           .spreads_experts = config_.expert_parallel_size > 1,
           .is_pipeline = config_.pipeline_parallel_size > 1,
           .pipeline = {.micro_batch_rows = config_.pipeline_parallel_micro_batch_size,
                        .async_depth = config_.pipeline_parallel_async_depth}}));
  executor_ = std::move(built.executor);
  ranks_ = built.ranks;
  pipeline_ = built.pipeline;
  ASSIGN_OR_RETURN(std::shared_ptr<const model::Vocabulary> vocabulary, model.LoadVocabulary());
  const proto::Identity identity = worker_shell::DrawIdentity(config_.instance, "decode", config_.rpc_port);
  const int64_t context_length_max = std::min(model.context_length(), layout.num_pages * kvcache::kPageTokens);

  std::optional<kvcache::KvPool> retraction_pool;
  if (retraction_memory_.has_value()) {
    ASSIGN_OR_RETURN(retraction_pool, kvcache::KvPool::Over(retraction_memory_->bytes(),
                                                            model.LayoutFor(config_.retraction_host_tokens)));
  }
  BatchLimits batch{.num_sequences_max = running.num_sequences, .num_rows_max = num_rows_max};
  if (config_.hisparse.enabled) {
    batch.num_rows_per_sequence_max = model::DeviceBuffers::kRowsPerSequenceMax;
    batch.num_kept_pages_max = sizes.num_kept_pages_max;
    LOG_INFO("hisparse is on", {"pools", Describe(sizes)});
  }
  engine_ = std::make_unique<Engine>(
      EngineOptions{.batch = batch,
                    .num_waiting_max = config_.max_queued_requests,
                    .schedule_policy = worker_shell::SchedulePolicyOf(config_.schedule_policy),
                    .context_length_max = context_length_max,
                    .router_grace = config_.router_grace,
                    .speculative = {.num_steps = num_steps, .is_adaptive = config_.speculative_adaptive},
                    .vocabulary = std::move(vocabulary),
                    .transfer = {.incarnation = identity.incarnation(), .layout = layout, .lane_policy = {}},
                    .num_device_pages = sizes.num_device_pages,
                    .prefix_cache = worker_shell::PrefixCacheOptions(config_, model),
                    .keeps_generated_pages = config_.prefix_cache_generated_tokens,
                    .retraction_pool = retraction_pool},
      clock_, *executor_, pool, *this);
  thread_ =
      std::make_unique<Thread>(*engine_, clock_, kMailboxCapacity, [this](const Engine& engine) { AfterStep(engine); });
  lanes_ = std::make_unique<kvtransfer::LaneSet>([this](uint64_t fetch_id, absl::Status status) {
    const absl::Duration ended = clock_.Now();  // a step may go by before the engine hears of it
    thread_->PostReserved([=](Engine& engine) { engine.FetchDone(fetch_id, status, ended); });
  });

  PeerLinksOptions links;
  links.security = security_.get();
  *links.hello.mutable_identity() = identity;
  *links.hello.mutable_fingerprint() = model.fingerprint();
  links.hello.mutable_lanes()->Add(config_.lanes.begin(), config_.lanes.end());
  ASSIGN_OR_RETURN(*links.hello.mutable_host_id(), worker_shell::HostId());
  links.hello.set_num_pages(layout.num_pages);
  links.liveness = {.heartbeat_interval = config_.heartbeat_interval,
                    .silence_max = config_.peer_silence_max,
                    .engine_stall_max = config_.engine_stall_max};
  links.wiring = {.kinds = config_.lanes,
                  .net_devices = config_.net_devices,
                  .target_incarnation = identity.incarnation(),
                  .target = memory_.bytes(),
                  .warm_up_offset = static_cast<uint64_t>(layout.pool_bytes()),
                  .warm_up_bytes = kvtransfer::kWarmUpBytesMax};
  if (!config_.fault_lane.empty()) {
    ASSIGN_OR_RETURN(links.wiring.faults, kvtransfer::ParseFaultSpec(config_.fault_lane));
    LOG_WARNING("lanes suffer faults on purpose", {"fault_lane", config_.fault_lane});
  }
  links_ = std::make_unique<PeerLinks>(std::move(links), clock_, LinkEvents());

  RouterServiceOptions service;
  service.security = security_.get();
  service.listen_address = base::HostPort{config_.listen_host, config_.rpc_port}.ToString();
  service.assembler = {.num_partial_requests_max = kPartialRequestsMax, .num_tokens_max = context_length_max};
  service.live.heartbeat_interval = config_.heartbeat_interval;
  service.live.silence_max = config_.router_silence_max;
  proto::WorkerHello& hello = service.live.hello;
  *hello.mutable_identity() = identity;
  hello.set_model_hash(model.hash());
  hello.set_context_length_max(static_cast<uint32_t>(context_length_max));
  hello.set_kv_tokens_capacity(layout.num_pages * kvcache::kPageTokens);
  ASSIGN_OR_RETURN(service_, RouterService::Start(std::move(service), clock_, LiveEvents(),
                                                  [this](GenerateRequest r) { return AcceptGenerate(std::move(r)); }));
  thread_->Start();
  ASSIGN_OR_RETURN(admin_, base::AdminHttpServer::Start(
                               config_.admin_host, config_.admin_port,
                               worker_shell::WorkerAdminHandlers(
                                   "decode worker", [this] { return DescribeLinks(); }, status_, metrics_)));
  LOG_INFO("decode worker is ready", {"rpc_port", rpc_port()}, {"admin_port", admin_port()},
           {"kv_pages", layout.num_pages}, {"context_length_max", context_length_max});
  return absl::OkStatus();
}

absl::Status Worker::Core::AcceptGenerate(GenerateRequest request) {
  worker_shell::LogIfTraced(request.key.ToString(), request.head.trace_parent(), request.prompt_tokens.size());
  const auto shared = std::make_shared<GenerateRequest>(std::move(request));
  if (thread_->Post([shared](Engine& engine) { engine.Generate(std::move(*shared)); })) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("messages that wait for the engine: ", thread_->mailbox_size(), ", at most ", kMailboxCapacity));
}

worker_shell::LiveEvents Worker::Core::LiveEvents() {
  return {
      .attached =
          [this](uint64_t stream_id, const proto::Identity& router) {
            thread_->PostReserved([=](Engine& engine) { engine.RouterAttached(stream_id, router); });
          },
      .message =
          [this](uint64_t stream_id, proto::RouterMessage message) {
            if (message.has_heartbeat()) return;  // the stream has noted it
            thread_->PostReserved(
                [=, message = std::move(message)](Engine& engine) { engine.RouterMessage(stream_id, message); });
          },
      .lost =
          [this](uint64_t stream_id) { thread_->PostReserved([=](Engine& engine) { engine.RouterLost(stream_id); }); },
      .vitals = [this] { return Vitals(); }};
}

PeerLinksEvents Worker::Core::LinkEvents() {
  return {.up =
              [this](const std::string& peer, std::shared_ptr<WiredPeer> wired) {
                thread_->PostReserved([this, peer, wired](Engine& engine) {
                  lanes_->Add(peer, std::move(wired->lanes));
                  decode_metrics_.PeerUp(peer, wired->source.lanes, wired->refusals.size());
                  engine.PeerUp(peer, wired->source);
                });
              },
          .down =
              [this](const std::string& peer, const absl::Status& status) {
                thread_->PostReserved([this, peer, status](Engine& engine) {
                  lanes_->Retire(peer);
                  decode_metrics_.PeerDown(peer);
                  engine.PeerDown(peer, status);
                });
              },
          .message =
              [this](const std::string& peer, proto::TransferMessage message) {
                thread_->PostReserved(
                    [peer, message = std::move(message)](Engine& engine) { engine.PeerMessage(peer, message); });
              },
          .vitals =
              [this] {
                const worker_shell::WorkerVitals vitals = Vitals();
                return kvtransfer::EngineVitals{.steps = vitals.engine_steps,
                                                .oldest_work_age = vitals.oldest_work_age};
              }};
}

void Worker::Core::AfterStep(const Engine& engine) {
  decode_metrics_.Update(engine, thread_->StepAge(), thread_->mailbox_size(), service_->num_queued_bytes());
  decode_metrics_.UpdateStrangers(security_->num_refused());
  if (ranks_ != nullptr) {
    decode_metrics_.UpdateRanks(*ranks_);
    // Nothing that the others have computed since may be used; whoever restarts the process brings all of them back.
    TANDEM_CHECK(ranks_->status().ok(), ranks_->status().message());
  }
  if (pipeline_ != nullptr) TANDEM_CHECK(pipeline_->status().ok(), pipeline_->status().message());
  status_.Publish(engine, clock_.Now());
}

std::string Worker::Core::DescribeLinks() const {
  return absl::StrCat("routers: ", service_->num_routers(), "\n", running_limit_, "\n",
                      ranks_ == nullptr ? "" : ranks_->Describe(), pipeline_ == nullptr ? "" : pipeline_->Describe());
}

absl::Status Worker::Core::Drain(absl::Duration timeout) {
  service_->AnnounceDraining();
  thread_->PostReserved([](Engine& engine) { engine.Drain(); });
  const absl::Status drained = status_.AwaitDrained(timeout);
  service_->Farewell(worker_shell::kFarewellMax);
  return drained;
}

Worker::Worker(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Worker::~Worker() = default;

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const DecodeConfig& config, const base::Clock& clock) {
  RETURN_IF_ERROR(Validate(config));
  ASSIGN_OR_RETURN(
      auto devices,
      worker_shell::OpenRankDevices(
          {.device = config.device, .num_threads = config.num_threads, .instruction_level = config.instruction_level},
          std::max(config.num_ranks(), config.pipeline_parallel_size)));
  ASSIGN_OR_RETURN(const worker_shell::ServedModel model,
                   worker_shell::ServedModel::Open(config.cluster, devices[0]->numerics_id()));
  const model::ModelConfig& shape = model.config();
  const kvcache::KvLayout one_page = model.LayoutFor(kvcache::kPageTokens);
  ASSIGN_OR_RETURN(const PoolSizes sizes, PlanPools(config.hisparse,
                                                    {.index_topk = shape.index_topk,
                                                     .dense_context_max = model.dense_context_max(),
                                                     .num_main_layers = shape.num_hidden_layers,
                                                     .has_mtp = one_page.num_layers > shape.num_hidden_layers,
                                                     .kv_cache_dtype = one_page.kv_cache_dtype},
                                                    config.kv_cache_tokens));
  const kvcache::KvLayout layout = model.LayoutFor(sizes.num_tokens);
  ASSIGN_OR_RETURN(const int64_t available_bytes, worker_shell::AvailableMemoryBytes());
  RETURN_IF_ERROR(worker_shell::CheckRoomForPool(sizes.num_tokens, config.tensor_parallel_size * layout.pool_bytes(),
                                                 available_bytes));
  const kvcache::KvLayout retraction_layout = model.LayoutFor(config.retraction_host_tokens);
  RETURN_IF_ERROR(worker_shell::CheckRoomForPool(config.retraction_host_tokens, retraction_layout.pool_bytes(),
                                                 available_bytes - config.tensor_parallel_size * layout.pool_bytes(),
                                                 "process.retraction_host_tokens"));
  std::optional<HostMemory> retraction_memory;
  if (retraction_layout.num_pages > 0) {
    ASSIGN_OR_RETURN(HostMemory mapped, HostMemory::Map(retraction_layout.pool_bytes()));
    retraction_memory.emplace(std::move(mapped));
  }
  // The scratch of lane warm-ups lies behind the pool.
  ASSIGN_OR_RETURN(HostMemory memory, HostMemory::Map(layout.pool_bytes() + kvtransfer::kWarmUpBytesMax));
  auto core =
      std::make_unique<Core>(config, clock, std::move(devices), std::move(memory), std::move(retraction_memory));
  RETURN_IF_ERROR(core->Start(model, layout, sizes));
  return std::unique_ptr<Worker>(new Worker(std::move(core)));
}

int Worker::rpc_port() const { return core_->rpc_port(); }
int Worker::admin_port() const { return core_->admin_port(); }
absl::Status Worker::Drain(absl::Duration timeout) { return core_->Drain(timeout); }

}  // namespace tandem::decode

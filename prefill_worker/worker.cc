#include "prefill_worker/worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/admin_http.h"
#include "base/check.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/peer_security.h"
#include "base/status_macros.h"
#include "kvcache/kv_pool.h"
#include "kvtransfer/bootstrap_service.h"
#include "kvtransfer/own_address.h"
#include "kvtransfer/readable_epochs.h"
#include "kvtransfer/tcp_source.h"
#include "kvtransfer/ucx_source.h"
#include "model/rank_group.h"
#include "prefill_worker/engine.h"
#include "prefill_worker/metrics.h"
#include "prefill_worker/outbox.h"
#include "prefill_worker/prefix_publisher.h"
#include "prefill_worker/router_service.h"
#include "worker_shell/compute_device.h"
#include "worker_shell/engine_status.h"
#include "worker_shell/engine_thread.h"
#include "worker_shell/identity.h"
#include "worker_shell/memory_room.h"
#include "worker_shell/prefix_cache_options.h"
#include "worker_shell/served_model.h"
#include "worker_shell/worker_admin.h"

namespace tandem::prefill {
namespace {

// Everything that comes in is bounded by its sender and may not be refused; this bounds nothing but the reserve.
constexpr size_t kMailboxCapacity = 4096;

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

class Worker::Core final : public Outbox {
 public:
  Core(const PrefillConfig& config, const base::Clock& clock)
      : config_(config), clock_(clock), metrics_("prefill"), prefill_metrics_(metrics_, config.num_ranks()) {}
  ~Core() override {
    admin_.reset();
    if (thread_ != nullptr) thread_->Stop();  // whoever still calls in finds a closed mailbox
  }

  absl::Status Start();
  absl::Status Drain(absl::Duration timeout);

  int rpc_port() const { return service_->port(); }
  int bootstrap_port() const { return bootstrap_->port(); }
  int admin_port() const { return admin_->port(); }

  // ---- Outbox: the engine's thread ----
  void ToTarget(kvtransfer::SendToTarget message) override {
    bootstrap_->Send(message.target_incarnation, message.message);
  }

 private:
  using Thread = worker_shell::EngineThread<Engine>;

  void OnBootstrapEvent(kvtransfer::BootstrapEvent event);
  void OnRouterMessage(uint64_t stream_id, const proto::RouterMessage& message);
  void OnRouterLost(uint64_t stream_id);
  // On the engine's thread.
  void Tell(const std::vector<PrefixPublisher::Told>& told);
  absl::StatusOr<std::vector<proto::SourceRank>> OfferLanes(const proto::HelloRequest& hello) const;
  std::string DescribeLinks() const;
  void AfterStep(const Engine& engine);
  worker_shell::WorkerVitals Vitals() const { return status_.Vitals(thread_->StepAge()); }

  const PrefillConfig config_;
  const base::Clock& clock_;
  std::string host_id_;
  std::unique_ptr<base::PeerSecurity> security_;  // outlives every stream
  base::Metrics metrics_;
  PrefillMetrics prefill_metrics_;
  worker_shell::EngineStatus status_;
  kvtransfer::ReadableEpochs readable_;
  std::unique_ptr<kvtransfer::UcxSource> source_;           // owns the KV pool
  std::unique_ptr<kvtransfer::TcpSource> tcp_source_;       // reads it; null where tcp is not offered
  std::vector<std::unique_ptr<kernels::Backend>> devices_;  // by rank
  std::unique_ptr<model::ModelExecutor> executor_;
  const model::RankGroup* ranks_ = nullptr;    // the executor, where it has several
  const model::Pipeline* pipeline_ = nullptr;  // the executor, where it has stages
  std::unique_ptr<Engine> engine_;
  PrefixPublisher publisher_;  // the engine's thread's
  std::unique_ptr<Thread> thread_;
  // Destroyed in this order from below; their last events meet a closed mailbox.
  std::unique_ptr<kvtransfer::BootstrapService> bootstrap_;
  std::unique_ptr<RouterService> service_;
  std::unique_ptr<base::AdminHttpServer> admin_;
};

absl::Status Worker::Core::Start() {
  ASSIGN_OR_RETURN(security_, base::PeerSecurity::Load(config_.peers, clock_));
  // Decode workers would ask for a name that leads nowhere for ever, and this worker would look ready meanwhile.
  ASSIGN_OR_RETURN(const base::HostPort advertised, base::ParseHostPort(absl::StrCat(config_.advertise_host, ":1")));
  if (const absl::Status resolves = kvtransfer::CheckResolves(advertised.host); !resolves.ok()) {
    return absl::Status(resolves.code(), absl::StrCat("process.advertise_host ", std::string(resolves.message())));
  }
  ASSIGN_OR_RETURN(devices_,
                   worker_shell::OpenRankDevices({.device = config_.device,
                                                  .num_threads = config_.num_threads,
                                                  .instruction_level = config_.instruction_level},
                                                 std::max(config_.num_ranks(), config_.pipeline_parallel_size)));
  ASSIGN_OR_RETURN(const worker_shell::ServedModel model,
                   worker_shell::ServedModel::Open(config_.cluster, devices_[0]->numerics_id()));
  const kvcache::KvLayout layout = model.LayoutFor(config_.kv_cache_tokens);
  ASSIGN_OR_RETURN(const int64_t available_bytes, worker_shell::AvailableMemoryBytes());
  // Ranks that deal sequences out share one.
  const int64_t num_pools = config_.context_parallel_kv == "copied"
                                ? std::max(config_.context_parallel_size, config_.tensor_parallel_size)
                                : config_.tensor_parallel_size;
  RETURN_IF_ERROR(
      worker_shell::CheckRoomForPool(config_.kv_cache_tokens, num_pools * layout.pool_bytes(), available_bytes));
  ASSIGN_OR_RETURN(host_id_, worker_shell::HostId());
  const std::string lane_host =
      kvtransfer::LaneListenHost(config_.listen_host, config_.advertise_host, config_.net_devices);
  const kvtransfer::EpochCheck is_readable = [this](const kvtransfer::FetchOrigin& origin) {
    return readable_.IsReadable(origin);
  };
  ASSIGN_OR_RETURN(source_,
                   kvtransfer::UcxSource::Start({.pool_bytes = static_cast<uint64_t>(layout.pool_bytes()),
                                                 .offers_shm = Contains(config_.lanes, kvtransfer::kUcxShmKind),
                                                 .offers_am = Contains(config_.lanes, kvtransfer::kUcxAmKind),
                                                 .am_listen_host = lane_host,
                                                 .net_devices = config_.net_devices,
                                                 .is_epoch_readable = is_readable}));
  const std::span<std::byte> pool_bytes = source_->pool().first(layout.pool_bytes());
  if (Contains(config_.lanes, kvtransfer::kTcpKind)) {
    ASSIGN_OR_RETURN(tcp_source_, kvtransfer::TcpSource::Start({.pool = pool_bytes,
                                                                .listen_host = lane_host,
                                                                .port = config_.lane_port,
                                                                .net_devices = config_.net_devices,
                                                                .is_epoch_readable = is_readable}));
  }
  ASSIGN_OR_RETURN(const kvcache::KvPool pool, kvcache::KvPool::Over(pool_bytes, layout));
  ASSIGN_OR_RETURN(
      worker_shell::WorkerExecutor built,
      model.BuildOnRanks(devices_, layout, pool_bytes, {.num_rows_max = config_.chunked_prefill_size},
                         {.row_split = config_.context_parallel_size > 1  ? model::RowSplit::kInterleave
                                       : config_.tensor_parallel_size > 1 ? model::RowSplit::kAllRows
                                                                          : model::RowSplit::kBySequence,
                          .kv_placement = num_pools > 1 ? model::KvPlacement::kCopied : model::KvPlacement::kShared,
                          .spreads_experts = config_.expert_parallel_size > 1,
                          .is_pipeline = config_.pipeline_parallel_size > 1,
                          .pipeline = {.micro_batch_rows = config_.pipeline_parallel_micro_batch_size,
                                       .async_depth = config_.pipeline_parallel_async_depth}}));
  executor_ = std::move(built.executor);
  ranks_ = built.ranks;
  pipeline_ = built.pipeline;
  ASSIGN_OR_RETURN(std::shared_ptr<const model::Vocabulary> vocabulary, model.LoadVocabulary());
  const proto::Identity identity = worker_shell::DrawIdentity(config_.instance, "prefill", config_.rpc_port);

  engine_ = std::make_unique<Engine>(
      EngineOptions{
          .chunks = {.num_tokens_max = config_.chunked_prefill_size, .num_chunks_max = config_.max_running_requests},
          .num_waiting_max = config_.max_queued_requests,
          .schedule_policy = worker_shell::SchedulePolicyOf(config_.schedule_policy),
          .vocabulary = std::move(vocabulary),
          .transfer = {.incarnation = identity.incarnation(), .layout = layout, .lease = config_.lease},
          .prefix_cache = worker_shell::PrefixCacheOptions(config_, model),
          .publishes_prefix_changes = true},
      clock_, *executor_, pool, &readable_, *this);
  thread_ =
      std::make_unique<Thread>(*engine_, clock_, kMailboxCapacity, [this](const Engine& engine) { AfterStep(engine); });

  kvtransfer::BootstrapOptions bootstrap;
  bootstrap.security = security_.get();
  bootstrap.listen = {.host = config_.listen_host, .port = config_.bootstrap_port};
  *bootstrap.hello.mutable_identity() = identity;
  *bootstrap.hello.mutable_fingerprint() = model.fingerprint();
  bootstrap.hello.set_host_id(host_id_);
  bootstrap.hello.set_num_pages(layout.num_pages);
  bootstrap.offer_lanes = [this](const proto::HelloRequest& hello) { return OfferLanes(hello); };
  bootstrap.liveness = {.heartbeat_interval = config_.heartbeat_interval,
                        .silence_max = config_.peer_silence_max,
                        .engine_stall_max = config_.engine_stall_max};
  const auto vitals = [this] {
    const worker_shell::WorkerVitals own = Vitals();
    return kvtransfer::EngineVitals{.steps = own.engine_steps, .oldest_work_age = own.oldest_work_age};
  };
  ASSIGN_OR_RETURN(bootstrap_, kvtransfer::BootstrapService::Start(
                                   std::move(bootstrap), clock_, vitals,
                                   [this](kvtransfer::BootstrapEvent e) { OnBootstrapEvent(std::move(e)); }));

  worker_shell::LiveOptions live;
  live.heartbeat_interval = config_.heartbeat_interval;
  live.silence_max = config_.router_silence_max;
  *live.hello.mutable_identity() = identity;
  live.hello.set_model_hash(model.hash());
  live.hello.set_context_length_max(
      static_cast<uint32_t>(std::min(model.context_length(), layout.num_pages * kvcache::kPageTokens)));
  if (config_.prefix_cache) {
    live.hello.set_page_key_domain(model.page_key_domain());
    live.hello.set_page_keys_cover_next_token(executor_->has_mtp());
  }
  live.hello.set_kv_tokens_capacity(layout.num_pages * kvcache::kPageTokens);
  live.hello.set_bootstrap_address(base::HostPort{config_.advertise_host, bootstrap_port()}.ToString());
  const std::string rpc_address = base::HostPort{config_.listen_host, config_.rpc_port}.ToString();
  // Requests come from decode workers; routers listen here, and may have the prefix cache flushed.
  ASSIGN_OR_RETURN(
      service_,
      RouterService::Start(
          rpc_address, std::move(live), *security_, clock_,
          {.attached = [](uint64_t, const proto::Identity&) {},
           .message = [this](uint64_t stream_id, proto::RouterMessage message) { OnRouterMessage(stream_id, message); },
           .lost = [this](uint64_t stream_id) { OnRouterLost(stream_id); },
           .vitals = [this] { return Vitals(); }}));
  thread_->Start();
  ASSIGN_OR_RETURN(admin_, base::AdminHttpServer::Start(
                               config_.admin_host, config_.admin_port,
                               worker_shell::WorkerAdminHandlers(
                                   "prefill worker", [this] { return DescribeLinks(); }, status_, metrics_)));
  LOG_INFO("prefill worker is ready", {"rpc_port", rpc_port()}, {"bootstrap_port", bootstrap_port()},
           {"admin_port", admin_port()}, {"kv_pages", layout.num_pages},
           {"chunked_prefill_size", config_.chunked_prefill_size});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<proto::SourceRank>> Worker::Core::OfferLanes(const proto::HelloRequest& hello) const {
  const std::vector<std::string> wanted(hello.lanes().begin(), hello.lanes().end());
  proto::SourceRank rank;
  std::vector<kvtransfer::LaneEnd> ends = source_->lane_ends();
  if (tcp_source_ != nullptr) ends.push_back(tcp_source_->lane_end());
  for (const kvtransfer::LaneEnd& end : ends) {
    if (!Contains(wanted, end.kind)) continue;
    if (end.kind == kvtransfer::kUcxShmKind && hello.host_id() != host_id_) continue;
    proto::LaneEnd& offer = *rank.add_lanes();
    offer.set_kind(end.kind);
    offer.set_worker_address(end.worker_address);
    offer.set_pool_address(end.pool_address);
    offer.set_pool_bytes(end.pool_bytes);
    offer.set_remote_key(end.remote_key);
  }
  if (rank.lanes().empty()) {
    return absl::FailedPreconditionError(
        "no lane in common: check process.lanes on both sides; ucx_shm needs one host");
  }
  return std::vector<proto::SourceRank>{rank};
}

void Worker::Core::OnBootstrapEvent(kvtransfer::BootstrapEvent event) {
  if (auto* up = std::get_if<kvtransfer::TargetUp>(&event)) {
    const proto::Identity& identity = up->hello.identity();
    LOG_INFO("decode worker linked", {"instance", identity.instance()});
    thread_->PostReserved([identity](Engine& engine) { engine.TargetUp(identity.incarnation(), identity.instance()); });
  } else if (auto* down = std::get_if<kvtransfer::TargetDown>(&event)) {
    LOG_WARNING("decode worker lost", {"status", down->status});
    thread_->PostReserved([incarnation = down->target_incarnation](Engine& engine) { engine.TargetDown(incarnation); });
  } else {
    thread_->PostReserved([message = std::move(std::get<kvtransfer::TargetMessage>(event))](Engine& engine) {
      engine.TargetMessage(message.target_incarnation, message.message);
    });
  }
}

void Worker::Core::OnRouterMessage(uint64_t stream_id, const proto::RouterMessage& message) {
  if (message.has_flush_prefix_cache()) {
    LOG_INFO("prefix cache flushed");
    thread_->PostReserved([](Engine& engine) { engine.FlushPrefixCache(); });
  } else if (message.has_prefix_snapshot_wanted()) {
    thread_->PostReserved([this, stream_id](Engine& engine) {
      if (engine.prefix_cache() == nullptr) return;
      Tell(publisher_.Publish(engine.TakePrefixChanges()));
      Tell(publisher_.Subscribe(stream_id, *engine.prefix_cache()));
    });
  }
}

void Worker::Core::OnRouterLost(uint64_t stream_id) {
  thread_->PostReserved([this, stream_id](Engine&) { publisher_.Unsubscribe(stream_id); });
}

void Worker::Core::Tell(const std::vector<PrefixPublisher::Told>& told) {
  for (const PrefixPublisher::Told& one : told) {
    proto::WorkerMessage message;
    *message.mutable_prefix_update() = one.update;
    service_->Send(one.stream_id, std::move(message));
  }
}

void Worker::Core::AfterStep(const Engine& engine) {
  prefill_metrics_.Update(engine, thread_->StepAge(), thread_->mailbox_size());
  if (tcp_source_ != nullptr) prefill_metrics_.UpdateTcp(*tcp_source_);
  prefill_metrics_.UpdateStrangers(security_->num_refused());
  if (ranks_ != nullptr) {
    prefill_metrics_.UpdateRanks(*ranks_);
    // Nothing that the others have computed since may be used; whoever restarts the process brings all of them back.
    TANDEM_CHECK(ranks_->status().ok(), ranks_->status().message());
  }
  if (pipeline_ != nullptr) TANDEM_CHECK(pipeline_->status().ok(), pipeline_->status().message());
  status_.Publish(engine, clock_.Now());
  Tell(publisher_.Publish(engine_->TakePrefixChanges()));
}

std::string Worker::Core::DescribeLinks() const {
  return absl::StrCat("routers: ", service_->num_routers(), "\ndecode workers: ", bootstrap_->num_sessions(), "\n",
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

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const PrefillConfig& config, const base::Clock& clock) {
  RETURN_IF_ERROR(Validate(config));
  auto core = std::make_unique<Core>(config, clock);
  RETURN_IF_ERROR(core->Start());
  return std::unique_ptr<Worker>(new Worker(std::move(core)));
}

int Worker::rpc_port() const { return core_->rpc_port(); }
int Worker::bootstrap_port() const { return core_->bootstrap_port(); }
int Worker::admin_port() const { return core_->admin_port(); }
absl::Status Worker::Drain(absl::Duration timeout) { return core_->Drain(timeout); }

}  // namespace tandem::prefill

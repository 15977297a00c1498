#include "router/shard.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/own_stall.h"
#include "base/random.h"
#include "boost/asio/io_context.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"
#include "proto/protocol_version.h"
#include "router/cluster.h"
#include "router/grpc_worker_channel.h"
#include "router/pair_picker.h"
#include "router/request_state.h"
#include "router/routes.h"

namespace tandem::router {
namespace asio = boost::asio;

namespace {

constexpr absl::Duration kFarewellMax = absl::Seconds(1);  // for the last bytes to clients that read

// Hands work to the loop from other threads for as long as there is a loop.
class LoopPoster final {
 public:
  explicit LoopPoster(asio::io_context* io_context) : io_context_(io_context) {}
  void Post(std::function<void()> work) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    if (io_context_ != nullptr) asio::post(*io_context_, std::move(work));
  }
  void Close() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    io_context_ = nullptr;
  }

 private:
  absl::Mutex mutex_;
  asio::io_context* io_context_ ABSL_GUARDED_BY(mutex_);
};

Cluster::Options ClusterOptions(const Shard::Options& options) {
  Cluster::Options cluster;
  cluster.prefill_workers = options.prefill_workers;
  cluster.decode_workers = options.decode_workers;
  cluster.times = options.link_times;
  cluster.credit_bytes = options.credit_bytes;
  cluster.follows_prefix_caches = options.pipeline.policy == PairPolicy::kPrefix;
  cluster.identity.set_instance(options.instance);
  cluster.identity.set_group(options.instance);
  cluster.identity.set_role("router");
  cluster.identity.set_incarnation(base::RandomId());
  cluster.identity.set_protocol_version(proto::kProtocolVersion);
  return cluster;
}

ModelCard CardOf(const ModelContext& context) {
  return {context.served_model_name, absl::ToUnixSeconds(base::RealClock().WallTime()), context.context_length};
}

bool TakesRequests(const WorkerView& worker) { return worker.is_up && !worker.is_draining && !worker.is_removed; }

PoolSnapshot PoolSnapshotOf(const ClusterView& view, double finished, double late, double slow) {
  PoolSnapshot snapshot{.finished_answers = finished, .late_first_tokens = late, .slow_answers = slow};
  for (const PrefillView& worker : view.prefills) {
    if (!TakesRequests(worker)) continue;
    snapshot.prefills.push_back({worker.incarnation, worker.load.waiting_tokens, worker.load.prompt_tokens});
  }
  for (const DecodeView& worker : view.decodes) {
    if (!TakesRequests(worker)) continue;
    snapshot.decodes.push_back({worker.load.kv_pages_free, worker.load.kv_pages_total, worker.load.running_sequences,
                                worker.load.waiting_requests});
  }
  return snapshot;
}

int CountUp(const auto& workers) {
  int count = 0;
  for (const WorkerView& worker : workers) count += worker.is_up ? 1 : 0;
  return count;
}

}  // namespace

// Everything of a shard that lives on its thread.
class Shard::Loop final {
 public:
  Loop(const Options& options, const Shared& shared)
      : clock_(base::RealClock()),
        shared_(shared),
        io_context_(std::make_unique<asio::io_context>(1)),
        poster_(std::make_shared<LoopPoster>(io_context_.get())),
        tick_(std::in_place, *io_context_),
        admission_(options.admission, clock_),
        cluster_(ClusterOptions(options),
                 MakeGrpcWorkerChannelFactory(
                     [poster = poster_](std::function<void()> work) { poster->Post(std::move(work)); }, *shared.peers)),
        pipeline_({.io_context = io_context_.get(),
                   .preparation = shared.preparation,
                   .clock = &clock_,
                   .context = shared.context,
                   .cluster = &cluster_,
                   .admission = &admission_,
                   .metrics = shared.metrics,
                   .timelines = shared.timelines},
                  options.pipeline),
        shard_(shared.readiness->Join()),
        routes_({.pipeline = &pipeline_,
                 .cluster = &cluster_,
                 .directory = shared.directory,
                 .metrics = shared.metrics,
                 .admission = &admission_,
                 .context = shared.context,
                 .preparation = shared.preparation,
                 .abort_relay = shared.abort_relay,
                 .post = [poster = poster_](std::function<void()> work) { poster->Post(std::move(work)); },
                 .clock = &clock_,
                 .access = shared.access,
                 .cors = shared.cors,
                 .readiness = shared.readiness,
                 .status_board = shared.status_board,
                 .timelines = shared.timelines,
                 .shortage = shard_ == 0 ? &shortage_ : nullptr,
                 .shard = shard_},
                options.instance, CardOf(*shared.context)),
        own_stall_(options.link_times.silence_max),
        shortage_judge_(options.shortage) {
    shared.abort_relay->Join([poster = poster_](std::function<void()> work) { poster->Post(std::move(work)); },
                             [this](const std::string& id) { return pipeline_.Abort(id); });
  }

  ~Loop() {
    if (thread_.joinable()) {
      if (!has_drained_) Drain({}).IgnoreError();  // nobody asked for time
      poster_->Close();
      io_context_->stop();
      thread_.join();
    }
    // What still waits in the io_context refers to the members below, and these hold timers and sockets of it.
    tick_.reset();
    server_.reset();
    io_context_.reset();
  }

  absl::Status Listen(const Options& options) {
    auto server = HttpServer::Listen(*io_context_, options.host, options.port, options.port_sharing, options.http,
                                     &routes_, shared_.tls);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
    return absl::OkStatus();
  }

  void Run() {
    thread_ = std::thread([this] {
      Tick();
      io_context_->run();
    });
  }

  absl::Status Drain(const DrainTimes& times) {
    const absl::Duration refuse_at = clock_.Now() + times.notice;
    absl::Notification done;
    asio::post(*io_context_, [&] {
      routes_.SetNotReady();
      refuse_at_ = std::min(refuse_at_, refuse_at);
      drain_deadline_ = std::min(drain_deadline_, refuse_at + times.grace);
      drained_ = &done;
      TickDrain();  // where there is no notice, whoever sees it not ready is refused too
    });
    done.WaitForNotification();
    has_drained_ = true;
    if (num_given_up_ == 0) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat(num_given_up_, " requests were given up when the drain ran out"));
  }

  void HurryDrain() {
    asio::post(*io_context_, [this] {
      is_hurried_ = true;
      refuse_at_ = drain_deadline_ = clock_.Now();
    });
  }

  int port() const { return server_->port(); }

  void SetWorkers(std::vector<std::string> prefill_workers, std::vector<std::string> decode_workers) {
    poster_->Post([this, prefill = std::move(prefill_workers), decode = std::move(decode_workers)] {
      cluster_.SetWorkers(prefill, decode);
    });
  }

 private:
  void Tick() {
    cluster_.Tick(clock_.Now());
    shared_.readiness->Post(shard_, CheckReady(cluster_.view()));
    UpdateGauges();
    if (shard_ == 0) JudgePools();
    if (clock_.Now() >= status_due_at_) {
      status_due_at_ = clock_.Now() + StatusBoard::kPostInterval;
      routes_.PostStatus();
    }
    if (drained_ != nullptr) TickDrain();
    tick_->expires_after(absl::ToChronoNanoseconds(WorkerLink::kTickInterval));
    tick_->async_wait([this](const boost::system::error_code& error) {
      if (!error) Tick();
    });
  }

  void TickDrain() {
    if (clock_.Now() < refuse_at_) return;
    if (!std::exchange(is_refusing_, true)) {
      routes_.SetDraining();
      server_->Drain();
    }
    if (clock_.Now() >= drain_deadline_ && !std::exchange(has_given_up_, true)) {
      num_given_up_ = pipeline_.GiveUpAll(absl::UnavailableError("router is shutting down"));
    }
    if (pipeline_.num_requests() == 0) server_->Close();
    if (pipeline_.num_requests() > 0 || server_->num_connections() > 0) {
      const absl::Duration confirmation_max = is_hurried_ ? absl::ZeroDuration() : RequestState::kReleaseWaitMax;
      if (clock_.Now() < drain_deadline_ + confirmation_max + kFarewellMax) return;
      LOG_WARNING("drain ended with requests unreleased", {"requests", pipeline_.num_requests()},
                  {"connections", server_->num_connections()});
    }
    std::exchange(drained_, nullptr)->Notify();
  }

  // The first shard speaks for the process: every shard is told the loads of all workers, and answers are counted
  // together.
  void JudgePools() {
    const bool prefill_was_short = shortage_.prefill.is_short, decode_was_short = shortage_.decode.is_short;
    RouterMetrics& metrics = *shared_.metrics;
    shortage_ = shortage_judge_.Observe(PoolSnapshotOf(cluster_.view(), metrics.finished_answers.Value(),
                                                       metrics.late_first_tokens.Value(), metrics.slow_answers.Value()),
                                        clock_.Now());
    metrics.prefill_pool_short.Set(shortage_.prefill.is_short ? 1 : 0);
    metrics.decode_pool_short.Set(shortage_.decode.is_short ? 1 : 0);
    metrics.prefill_workers_suggested.Set(shortage_.prefill.num_suggested);
    metrics.decode_workers_suggested.Set(shortage_.decode.num_suggested);
    if (prefill_was_short != shortage_.prefill.is_short || decode_was_short != shortage_.decode.is_short) {
      LOG_INFO("which pool is short has changed", {"short", shortage_.ToString()});
    }
  }

  // Gauges are sums over the shards: each adds what has changed since its last word.
  void UpdateGauges() {
    const ClusterView& view = cluster_.view();
    const Gauges now = {CountUp(view.prefills),
                        CountUp(view.decodes),
                        CountUsablePairs(view),
                        server_->num_connections(),
                        admission_.num_in_flight(),
                        admission_.num_waiting(),
                        static_cast<double>(server_->num_body_bytes())};
    shared_.metrics->prefill_workers_up.Increment(now.prefills - gauges_.prefills);
    shared_.metrics->decode_workers_up.Increment(now.decodes - gauges_.decodes);
    shared_.metrics->usable_pairs.Increment(now.pairs - gauges_.pairs);
    shared_.metrics->connections.Increment(now.connections - gauges_.connections);
    shared_.metrics->requests_in_flight.Increment(now.in_flight - gauges_.in_flight);
    shared_.metrics->requests_waiting.Increment(now.waiting - gauges_.waiting);
    shared_.metrics->body_bytes.Increment(now.body_bytes - gauges_.body_bytes);
    gauges_ = now;
    const Cluster::Counters& counters = cluster_.counters();
    shared_.metrics->streams_lost.Increment(static_cast<double>(counters.streams_lost - counted_.streams_lost));
    shared_.metrics->streams_reattached.Increment(
        static_cast<double>(counters.streams_reattached - counted_.streams_reattached));
    shared_.metrics->workers_lost.Increment(static_cast<double>(counters.workers_lost - counted_.workers_lost));
    shared_.metrics->ejections.Increment(static_cast<double>(counters.ejections - counted_.ejections));
    counted_ = counters;
    if (const absl::Duration lost_time = own_stall_.Observe(clock_.Now()); lost_time > absl::ZeroDuration()) {
      shared_.metrics->loop_stalls.Increment();
      LOG_WARNING("this router's loop was stalled", {"for", lost_time});
    }
  }

  struct Gauges {
    int prefills = 0;
    int decodes = 0;
    int pairs = 0;
    int connections = 0;
    int in_flight = 0;
    int waiting = 0;
    double body_bytes = 0;
  };

  const base::Clock& clock_;
  const Shared shared_;
  std::unique_ptr<asio::io_context> io_context_;
  const std::shared_ptr<LoopPoster> poster_;
  std::optional<asio::steady_timer> tick_;
  Admission admission_;
  Cluster cluster_;
  RequestPipeline pipeline_;
  const int shard_;  // its number in the readiness of the process
  Routes routes_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  Gauges gauges_;
  absl::Duration status_due_at_ = absl::ZeroDuration();
  absl::Duration refuse_at_ = absl::InfiniteDuration();
  Cluster::Counters counted_;
  base::OwnStall own_stall_;
  PoolShortageJudge shortage_judge_;
  PoolShortage shortage_;  // of the first shard
  absl::Duration drain_deadline_ = absl::InfiniteDuration();
  absl::Notification* drained_ = nullptr;
  bool is_refusing_ = false;
  bool is_hurried_ = false;
  bool has_given_up_ = false;
  int num_given_up_ = 0;
  bool has_drained_ = false;  // read and written by the owner's thread
};

absl::StatusOr<std::unique_ptr<Shard>> Shard::Start(const Options& options, const Shared& shared) {
  auto loop = std::make_unique<Loop>(options, shared);
  if (absl::Status status = loop->Listen(options); !status.ok()) return status;
  loop->Run();
  return std::unique_ptr<Shard>(new Shard(std::move(loop)));
}

Shard::Shard(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
Shard::~Shard() = default;
int Shard::port() const { return loop_->port(); }
void Shard::SetWorkers(std::vector<std::string> prefill_workers, std::vector<std::string> decode_workers) {
  loop_->SetWorkers(std::move(prefill_workers), std::move(decode_workers));
}
absl::Status Shard::Drain(const DrainTimes& times) { return loop_->Drain(times); }
void Shard::HurryDrain() { loop_->HurryDrain(); }

}  // namespace tandem::router
